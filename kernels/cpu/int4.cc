#include "kernels/cpu/int4.h"

#include <algorithm>
#include <cmath>

#include "kernels/element.h"

namespace coppice::kernels::cpu {
namespace {

constexpr int kTries = 9;
constexpr float kFewestSteps = 6.5f, kMoreSteps = 0.375f;
constexpr float kLargest = 3.4028235e38f;
// Below this, a scale would not be a normal number.
constexpr float kSmallest = 16 * 1.17549435e-38f;

// One value for each output. Loops over it become vector instructions.
using Lanes = float[kPanelWidth];

// The nearest whole step, ties to even.
inline float Step(float value, float steps_per_unit) {
  constexpr float kRound = 12582912.0f;  // 1.5 2^23: from there on every float is a whole number
  const float steps = std::min(7.0f, std::max(-8.0f, value * steps_per_unit));
  return (steps + kRound) - kRound;
}

// The value of largest magnitude of each group. 0 if it is too small to have a scale, NaN if a
// value is not finite.
void FindLargest(const Int4Group& group, Lanes largest) {
  Lanes not_finite = {};
  std::fill_n(largest, kPanelWidth, 0.0f);
  for (const Lanes& values : group.values) {
    for (int lane = 0; lane < kPanelWidth; ++lane) {
      const float value = values[lane];
      largest[lane] = std::abs(value) > std::abs(largest[lane]) ? value : largest[lane];
      not_finite[lane] = std::abs(value) <= kLargest ? not_finite[lane] : 1.0f;
    }
  }
  for (int lane = 0; lane < kPanelWidth; ++lane) {
    if (std::abs(largest[lane]) < kSmallest) largest[lane] = 0;
    if (not_finite[lane] != 0) largest[lane] = NAN;
  }
}

// The scales of the least error, in units of the largest value: with steps q the best scale is
// sum(v q) / sum(q q), and its error is sum(v v) - sum(v q)^2 / sum(q q).
void FindScales(const float (*units)[kPanelWidth], Lanes scale) {
  Lanes best = {};
  std::fill_n(scale, kPanelWidth, 0.0f);
  for (int t = 0; t < kTries; ++t) {
    const float steps_per_unit = -(kFewestSteps + kMoreSteps * static_cast<float>(t));
    Lanes vq = {}, qq = {};
    for (int64_t k = 0; k < kInt4Group; ++k) {
      for (int lane = 0; lane < kPanelWidth; ++lane) {
        const float q = Step(units[k][lane], steps_per_unit);
        vq[lane] += units[k][lane] * q;
        qq[lane] += q * q;
      }
    }
    for (int lane = 0; lane < kPanelWidth; ++lane) {
      const float gain = qq[lane] > 0 ? vq[lane] * vq[lane] / qq[lane] : 0;
      if (gain <= best[lane]) continue;
      best[lane] = gain;
      scale[lane] = vq[lane] / qq[lane];
    }
  }
}

}  // namespace

void QuantiseInt4(Int4Group* group) {
  Lanes largest, per_largest, scale, steps_per_unit;
  FindLargest(*group, largest);
  for (int lane = 0; lane < kPanelWidth; ++lane)
    per_largest[lane] = std::abs(largest[lane]) > 0 ? 1 / largest[lane] : 0;  // 0 for NaN too
  float units[kInt4Group][kPanelWidth];
  for (int64_t k = 0; k < kInt4Group; ++k) {
    for (int lane = 0; lane < kPanelWidth; ++lane) {
      const float value = std::isnan(largest[lane]) ? 0 : group->values[k][lane];
      units[k][lane] = value * per_largest[lane];
    }
  }
  FindScales(units, scale);
  for (int lane = 0; lane < kPanelWidth; ++lane) {
    group->scale[lane] = FloatToBf16(scale[lane] * largest[lane]);
    // The scale as the kernels will read it, in units of the largest value.
    const float stored = Bf16ToFloat(group->scale[lane]) * per_largest[lane];
    steps_per_unit[lane] = stored != 0 ? 1 / stored : 0;
  }
  for (int64_t k = 0; k < kInt4Group; ++k) {
    for (int lane = 0; lane < kPanelWidth; ++lane) {
      const float q = Step(units[k][lane], steps_per_unit[lane]);
      group->codes[k][lane] = static_cast<uint8_t>(static_cast<int>(q) + 8);
    }
  }
}

}  // namespace coppice::kernels::cpu
