// Log, Exp and Log1p from plain IEEE operations (no libm, no fma), so that the same logits decide
// the same on every machine (docs/architecture.md 6). Accurate to about 1 ulp; -inf, inf and NaN
// as libm.
#pragma once

namespace coppice {

double Log(double x);
double Exp(double x);
double Log1p(double x);  // x > -1

}  // namespace coppice
