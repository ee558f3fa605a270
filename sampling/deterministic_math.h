// Log, Exp and Log1p from plain IEEE operations (no libm, no fma), so that the same logits lead to
// the same decision on every machine (docs/architecture.md 6). Accurate to about 1 ulp. -inf, inf
// and NaN behave as in libm.
#pragma once

namespace coppice::sampling {

double Log(double x);
double Exp(double x);
double Log1p(double x);  // x > -1

}  // namespace coppice::sampling
