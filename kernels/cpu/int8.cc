#include "kernels/cpu/int8.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace coppice::kernels::cpu {
namespace {

constexpr float kLargest = 127;

}  // namespace

float QuantiseGroup(const float* values, int64_t count, int8_t* q) {
  // Bits of magnitudes are ordered as the magnitudes, with infinity and NaN last; the maximum of
  // integers is a vector instruction everywhere.
  int32_t largest = 0;
  for (int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<int32_t>(values[i]) & 0x7fffffff);
  const bool finite = largest < 0x7f800000;
  const float scale = finite ? std::bit_cast<float>(largest) / kLargest : NAN;
  // A scale below the normal numbers would make the quotient infinite.
  if (!finite || scale < 1.17549435e-38f) {
    std::fill_n(q, count, int8_t{0});
    return finite ? 0 : scale;
  }
  const float per_step = 1 / scale;
  for (int64_t i = 0; i < count; ++i) {
    const float steps = values[i] * per_step;
    const float rounded = steps + std::copysign(0.5f, steps);  // towards zero by the conversion
    q[i] = static_cast<int8_t>(std::clamp(rounded, -kLargest, kLargest));
  }
  return scale;
}

void Int8Rows::Resize(int64_t rows, int64_t columns, DType of_weights) {
  const int64_t groups = Int8Groups(columns);
  weights = of_weights;
  words.resize(rows * groups * kInt8Group / 4);
  scale.resize(rows * groups);
  correction.resize(rows * groups * (weights == DType::kI4 ? 2 : 1));
}

void Int8Rows::Set(int64_t row, const float* x, int64_t columns) {
  const int64_t groups = Int8Groups(columns);
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t begin = g * kInt8Group, count = std::min(kInt8Group, columns - begin);
    int8_t q[kInt8Group] = {};
    scale[row * groups + g] = QuantiseGroup(x + begin, count, q);
    int32_t sum[2] = {};  // of the first 32 and of the others
    for (int64_t k = 0; k < kInt8Group; ++k) sum[k / kInt4Group] += q[k];
    if (weights == DType::kI4) {
      correction[(row * groups + g) * 2] = -8 * sum[0];
      correction[(row * groups + g) * 2 + 1] = -8 * sum[1];
    } else {
      correction[row * groups + g] = -128 * (sum[0] + sum[1]);
    }
    std::memcpy(words.data() + (row * groups + g) * kInt8Group / 4, q, kInt8Group);
  }
}

}  // namespace coppice::kernels::cpu
