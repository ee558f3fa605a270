#include "loadgen/arrivals.h"

#include <algorithm>
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
    // Section 6 of their paper.
    if (shape < 1) return Next(shape + 1) * std::pow(Uniform(), 1 / shape);
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

double RampRate(const ArrivalProcess& arrivals, double progress) {
  if (arrivals.ramp == Ramp::kLinear)
    return arrivals.ramp_start + (arrivals.ramp_end - arrivals.ramp_start) * progress;
  return arrivals.ramp_start * std::pow(arrivals.ramp_end / arrivals.ramp_start, progress);
}

// The number of requests whose ramp is expected to take the duration: duration divided by the mean
// gap, the integral of 1 / rate over the way.
int RampCount(const ArrivalProcess& arrivals) {
  const double a = arrivals.ramp_start, b = arrivals.ramp_end;
  double mean_gap = 1 / a;
  if (std::abs(b / a - 1) > 1e-9) {
    const double log_ratio = std::log(b / a);
    mean_gap = arrivals.ramp == Ramp::kLinear ? log_ratio / (b - a) : (1 / a - 1 / b) / log_ratio;
  }
  return static_cast<int>(std::ceil(arrivals.duration_s / mean_gap));
}

}  // namespace

std::vector<double> ArrivalTimes(int count, const ArrivalProcess& arrivals, uint64_t seed) {
  const bool ramped = arrivals.ramp != Ramp::kNone;
  if (!ramped && std::isinf(arrivals.rate)) return std::vector<double>(count, 0.0);
  const int ramp_steps = !ramped ? 0 : count > 0 ? count : RampCount(arrivals);
  const double burstiness = arrivals.burstiness;
  std::vector<double> times;
  GammaSource gamma(seed);
  double now = 0;
  for (int k = 0; count == 0 || k < count; ++k) {
    double rate = arrivals.rate;
    if (ramped)
      rate = RampRate(arrivals, ramp_steps > 1 ? std::min(1.0, k / (ramp_steps - 1.0)) : 0.0);
    now += gamma.Next(burstiness) / (burstiness * rate);
    if (arrivals.duration_s > 0 && now >= arrivals.duration_s) break;
    times.push_back(now);
  }
  return times;
}

bool IsChosenForCancellation(uint64_t seed, int64_t k, double percent) {
  // Its own stream of the seed, so that it does not follow the arrivals.
  std::seed_seq mix{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                    static_cast<uint32_t>(k), static_cast<uint32_t>(k >> 32), 0xca9ce1u};
  uint32_t word[1];
  mix.generate(word, word + 1);
  return word[0] * 0x1p-32 * 100 < percent;
}

}  // namespace coppice::loadgen
