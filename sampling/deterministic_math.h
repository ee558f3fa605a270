// Log, Exp and Log1p from plain IEEE operations (no libm, no fma), so that the same logits lead to
// the same decision on every machine (docs/architecture.md 6). Accurate to about 1 ulp. -inf, inf
// and NaN behave as in libm.
#pragma once

#include <limits>

namespace coppice::sampling {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kLogZero = -kInfinity;  // log of probability 0

double Log(double x);
double Exp(double x);
double Log1p(double x);  // x > -1

}  // namespace coppice::sampling
