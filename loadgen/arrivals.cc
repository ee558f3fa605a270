#include "loadgen/arrivals.h"

#include <cmath>
#include <random>

namespace coppice::loadgen {
namespace {

constexpr double kPi = 3.14159265358979323846;

// The C++ standard specifies the engine exactly, but not the distributions. So these distributions
// are implemented here, from the papers named below.
class GammaSource {
 public:
  explicit GammaSource(uint64_t seed) : engine_(seed) {}

  // Mean shape, scale 1. Marsaglia and Tsang 2000, "A simple method for generating gamma
  // variables".
  double Next(double shape) {
    if (shape < 1) return Next(shape + 1) * std::pow(Uniform(), 1 / shape);  // their section 6
    const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    while (true) {
      const double x = Normal();
      const double v = std::pow(1 + c * x, 3);
      if (v > 0 && std::log(Uniform()) < x * x / 2 + d - d * v + d * std::log(v)) return d * v;
    }
  }

 private:
  double Uniform() { return (static_cast<double>(engine_() >> 11) + 0.5) * 0x1p-53; }  // in (0, 1)
  double Normal() {  // Box and Muller 1958
    const double radius = std::sqrt(-2 * std::log(Uniform()));
    return radius * std::cos(2 * kPi * Uniform());
  }

  std::mt19937_64 engine_;
};

}  // namespace

std::vector<double> ArrivalTimes(int count, double rate, double burstiness, uint64_t seed) {
  std::vector<double> times(count, 0.0);
  if (std::isinf(rate)) return times;
  GammaSource gamma(seed);
  double now = 0;
  for (double& time : times) time = now += gamma.Next(burstiness) / (burstiness * rate);
  return times;
}

}  // namespace coppice::loadgen
