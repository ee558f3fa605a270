#include "lab/experiments/statistics.h"

#include <cmath>
#include <limits>

namespace coppice::lab {

Estimate RatioSample::Get() const {
  constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
  double a = 0, b = 0;
  for (size_t g = 0; g < numerator_.size(); ++g) {
    a += numerator_[g];
    b += denominator_[g];
  }
  if (b == 0) return {kNothing, kNothing, 0};
  std::vector<double> without;
  double mean = 0;
  for (size_t g = 0; g < numerator_.size(); ++g) {
    if (denominator_[g] == 0 || denominator_[g] == b) continue;
    without.push_back((a - numerator_[g]) / (b - denominator_[g]));
    mean += without.back();
  }
  if (without.size() < 2) return {a / b, kNothing, b};
  mean /= without.size();
  double squares = 0;
  for (double ratio : without) squares += (ratio - mean) * (ratio - mean);
  return {a / b, std::sqrt(squares * (without.size() - 1) / without.size()), b};
}

}  // namespace coppice::lab
