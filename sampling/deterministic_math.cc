#include "sampling/deterministic_math.h"

#include <bit>
#include <cstdint>
#include <limits>

namespace coppice::sampling {
namespace {

constexpr double kLn2High =
    6.93147180369123816490e-01;  // ln 2 = high + low, high has 21 trailing zero bits
constexpr double kLn2Low = 1.90821492927058770002e-10;

}  // namespace

// log(x) = k ln 2 + log(m), m in [sqrt(1/2), sqrt(2)); with s = (m-1)/(m+1),
// log(m) = 2 atanh(s) = 2s + s^3 * P(s^2): the Taylor series of atanh to s^23, |s| < 0.1716.
double Log(double x) {
  if (x != x || x == kInfinity) return x;
  if (x == 0) return -kInfinity;
  if (x < 0) return std::numeric_limits<double>::quiet_NaN();
  int k = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    k = -54;
  }
  uint64_t bits = std::bit_cast<uint64_t>(x);
  k += static_cast<int>(bits >> 52) - 1023;
  bits = (bits & 0x000FFFFFFFFFFFFFull) | 0x3FF0000000000000ull;
  double m = std::bit_cast<double>(bits);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++k;
  }
  const double f = m - 1;  // exact
  const double s = f / (2 + f);
  const double z = s * s;
  double p = 2.0 / 23;
  p = p * z + 2.0 / 21;
  p = p * z + 2.0 / 19;
  p = p * z + 2.0 / 17;
  p = p * z + 2.0 / 15;
  p = p * z + 2.0 / 13;
  p = p * z + 2.0 / 11;
  p = p * z + 2.0 / 9;
  p = p * z + 2.0 / 7;
  p = p * z + 2.0 / 5;
  p = p * z + 2.0 / 3;
  p = p * z;  // log(m) = 2s + s p, and 2s = f - s f, so log(m) = f - (f^2/2 - s (f^2/2 + p))
  const double half = 0.5 * f * f;
  return k * kLn2High - ((half - (s * (half + p) + k * kLn2Low)) - f);
}

// exp(x) = 2^k exp(r), r = x - k ln 2, |r| <= 0.35: Taylor to r^13.
double Exp(double x) {
  if (x != x) return x;
  if (x > 709.782712893384) return kInfinity;
  if (x < -745.2) return 0;
  const double scaled = x * 1.4426950408889634;
  const int k = static_cast<int>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
  const double high = x - k * kLn2High;
  const double low = k * kLn2Low;
  const double r = high - low;
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  const double error = (high - r) - low;  // the rounding error of r
  double y = 1 + (r + (r * r * p + error));
  int first = k;
  if (k > 1023) {
    y *= 0x1p1023;
    first = k - 1023;
  } else if (k < -1022) {
    y *= std::bit_cast<double>(static_cast<uint64_t>(k + 1000 + 1023) << 52);
    first = -1000;
  }
  return y * std::bit_cast<double>(static_cast<uint64_t>(first + 1023) << 52);
}

double Log1p(double x) {
  const double u = 1 + x;
  if (u == 1) return x;
  if (u <= 0) return Log(u);
  if (u == kInfinity) return u;
  return Log(u) + (x - (u - 1)) / u;
}

}  // namespace coppice::sampling
