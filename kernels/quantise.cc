#include "kernels/quantise.h"

#include <algorithm>
#include <cmath>

#include "kernels/element.h"

namespace coppice::kernels {
namespace {

constexpr int kTries = 9;
constexpr float kFewestSteps = 6.5f, kMoreSteps = 0.375f;
constexpr float kLargest = 3.4028235e38f;
// Below this, the reciprocal would be infinite. No scale in f16 is as small.
constexpr float kSmallest = 16 * 1.17549435e-38f;

// One value for each output. Loops over it become vector instructions.
using Lanes = float[kQuantisedOutputs];

// The steps of a type are from kLeast to kMost.
template <int kLeastStep, int kMostStep>
struct Steps {
  static constexpr int kLeast = kLeastStep, kMost = kMostStep;
  // The nearest whole step, ties to even.
  static float Nearest(float value, float steps_per_unit) {
    constexpr float kRound = 12582912.0f;  // 1.5 2^23: from there on every float is a whole number
    const float steps = std::min<float>(kMost, std::max<float>(kLeast, value * steps_per_unit));
    return (steps + kRound) - kRound;
  }
};
using StepsOfInt4 = Steps<-8, 7>;
using StepsOfInt8 = Steps<-127, 127>;

// The next larger f16 if this one, as the scale of 8 bits, does not reach `largest`. It matters for
// small weights: below 6e-5 an f16 has fewer digits.
uint16_t ScaleThatReaches(uint16_t scale, float largest) {
  const bool reaches = std::abs(F16ToFloat(scale)) * StepsOfInt8::kMost >= std::abs(largest);
  return reaches || std::isnan(largest) ? scale : static_cast<uint16_t>(scale + 1);
}

// The value of largest magnitude of each group. 0 if it is too small to have a scale, NaN if a
// value is not finite.
void FindLargest(const QuantisedGroup& group, Lanes largest) {
  Lanes not_finite = {};
  std::fill_n(largest, kQuantisedOutputs, 0.0f);
  for (const Lanes& values : group.values) {
    for (int lane = 0; lane < kQuantisedOutputs; ++lane) {
      const float value = values[lane];
      largest[lane] = std::abs(value) > std::abs(largest[lane]) ? value : largest[lane];
      not_finite[lane] = std::abs(value) <= kLargest ? not_finite[lane] : 1.0f;
    }
  }
  for (int lane = 0; lane < kQuantisedOutputs; ++lane) {
    if (std::abs(largest[lane]) < kSmallest) largest[lane] = 0;
    if (not_finite[lane] != 0) largest[lane] = NAN;
  }
}

// The scales of the least error, in units of the largest value: with steps q the best scale is
// sum(v q) / sum(q q), and its error is sum(v v) - sum(v q)^2 / sum(q q).
void FindScales(const float (*units)[kQuantisedOutputs], Lanes scale) {
  Lanes best = {};
  std::fill_n(scale, kQuantisedOutputs, 0.0f);
  for (int t = 0; t < kTries; ++t) {
    const float steps_per_unit = -(kFewestSteps + kMoreSteps * static_cast<float>(t));
    Lanes vq = {}, qq = {};
    for (int64_t k = 0; k < kQuantisedGroup; ++k) {
      for (int lane = 0; lane < kQuantisedOutputs; ++lane) {
        const float q = StepsOfInt4::Nearest(units[k][lane], steps_per_unit);
        vq[lane] += units[k][lane] * q;
        qq[lane] += q * q;
      }
    }
    for (int lane = 0; lane < kQuantisedOutputs; ++lane) {
      const float gain = qq[lane] > 0 ? vq[lane] * vq[lane] / qq[lane] : 0;
      if (gain <= best[lane]) continue;
      best[lane] = gain;
      scale[lane] = vq[lane] / qq[lane];
    }
  }
}

// Codes of the values, which are `units` times the largest, for the scales of the group.
template <class Steps>
void SetCodes(const float (*units)[kQuantisedOutputs], const Lanes per_largest, int offset,
              QuantisedGroup* group) {
  Lanes steps_per_unit;
  for (int lane = 0; lane < kQuantisedOutputs; ++lane) {
    // The scale as the kernels will read it, in units of the largest value.
    const float stored = F16ToFloat(group->scale[lane]) * per_largest[lane];
    steps_per_unit[lane] = stored != 0 ? 1 / stored : 0;
  }
  for (int64_t k = 0; k < kQuantisedGroup; ++k) {
    for (int lane = 0; lane < kQuantisedOutputs; ++lane) {
      const float q = Steps::Nearest(units[k][lane], steps_per_unit[lane]);
      group->codes[k][lane] = static_cast<uint8_t>(static_cast<int>(q) + offset);
    }
  }
}

}  // namespace

void Quantise(DType dtype, QuantisedGroup* group) {
  Lanes largest, per_largest;
  FindLargest(*group, largest);
  for (int lane = 0; lane < kQuantisedOutputs; ++lane)
    per_largest[lane] = std::abs(largest[lane]) > 0 ? 1 / largest[lane] : 0;  // 0 for NaN too
  float units[kQuantisedGroup][kQuantisedOutputs];
  for (int64_t k = 0; k < kQuantisedGroup; ++k) {
    for (int lane = 0; lane < kQuantisedOutputs; ++lane) {
      const float value = std::isnan(largest[lane]) ? 0 : group->values[k][lane];
      units[k][lane] = value * per_largest[lane];
    }
  }
  if (dtype == DType::kQ4_0) {
    Lanes scale;
    FindScales(units, scale);
    for (int lane = 0; lane < kQuantisedOutputs; ++lane)
      group->scale[lane] = FloatToF16(scale[lane] * largest[lane]);
    SetCodes<StepsOfInt4>(units, per_largest, 8, group);
  } else {
    for (int lane = 0; lane < kQuantisedOutputs; ++lane) {
      const uint16_t nearest = FloatToF16(largest[lane] / StepsOfInt8::kMost);
      group->scale[lane] = ScaleThatReaches(nearest, largest[lane]);
    }
    SetCodes<StepsOfInt8>(units, per_largest, 0, group);
  }
}

}  // namespace coppice::kernels
