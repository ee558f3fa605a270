#include "kernels/cpu/int8.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/int8.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr float kLargest = 127;
constexpr int64_t kHalf = kInt8Group / 2;
static_assert(kHalf == kInt4Group);

// Quantises kInt8Group values. sums: the sum of q over each half. The other arguments are as in
// QuantiseGroup.
float Quantise(const float* values, int8_t* q, int32_t* sums) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<int8_t, decltype(df)> dq;
  const auto lanes = static_cast<int64_t>(hn::Lanes(df));
  // Bits of magnitudes are ordered as the magnitudes, with infinity and NaN last.
  auto most = hn::Zero(di);
  for (int64_t i = 0; i < kInt8Group; i += lanes)
    most = hn::Max(most, hn::BitCast(di, hn::Abs(hn::LoadU(df, values + i))));
  const auto bits = hn::MaxOfLanes(di, most);
  const float largest = hn::GetLane(hn::BitCast(df, bits));
  const bool finite = hn::GetLane(bits) < 0x7f800000;
  const float scale = finite ? largest / kLargest : NAN;
  // A scale below the normal numbers would make the quotient infinite.
  if (!finite || scale < 1.17549435e-38f) {
    std::fill_n(q, kInt8Group, int8_t{0});
    sums[0] = sums[1] = 0;
    return finite ? 0 : scale;
  }
  const auto per_step = hn::Set(df, 1 / scale), half = hn::Set(df, 0.5f);
  const auto high = hn::Set(df, kLargest), low = hn::Set(df, -kLargest);
  for (int part = 0; part < 2; ++part) {
    auto sum = hn::Zero(di);
    for (int64_t i = part * kHalf; i < (part + 1) * kHalf; i += lanes) {
      const auto steps = hn::Mul(hn::LoadU(df, values + i), per_step);
      const auto rounded = hn::Add(steps, hn::CopySign(half, steps));  // the conversion truncates
      const auto whole = hn::ConvertTo(di, hn::Max(low, hn::Min(rounded, high)));
      sum = hn::Add(sum, whole);
      hn::StoreU(hn::DemoteTo(dq, whole), dq, q + i);
    }
    sums[part] = hn::GetLane(hn::SumOfLanes(di, sum));
  }
  return scale;
}

void SetRow(Int8Rows* rows, int64_t row, const float* x, int64_t columns) {
  const int64_t groups = Int8Groups(columns);
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t begin = g * kInt8Group, at = g * rows->rows + row;
    const float* values = x + begin;
    float last[kInt8Group];
    if (columns - begin < kInt8Group) {
      std::fill(std::copy(values, x + columns, last), last + kInt8Group, 0.0f);
      values = last;
    }
    int32_t sums[2];
    auto* q = reinterpret_cast<int8_t*>(rows->words.data() + at * kInt8Group / 4);
    rows->scale[at] = Quantise(values, q, sums);
    if (rows->weights == DType::kI4) {
      rows->correction[at * 2] = -8 * sums[0];
      rows->correction[at * 2 + 1] = -8 * sums[1];
    } else {
      rows->correction[at] = -128 * (sums[0] + sums[1]);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace coppice::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::kernels::cpu {

HWY_EXPORT(Quantise);
HWY_EXPORT(SetRow);

float QuantiseGroup(const float* values, int64_t count, int8_t* q) {
  float padded[kInt8Group] = {};
  int8_t all[kInt8Group];
  int32_t sums[2];
  std::copy_n(values, count, padded);
  const float scale = HWY_DYNAMIC_DISPATCH(Quantise)(padded, all, sums);
  std::copy_n(all, count, q);
  return scale;
}

void Int8Rows::Resize(int64_t row_count, int64_t columns, DType of_weights) {
  const int64_t groups = Int8Groups(columns);
  rows = row_count;
  weights = of_weights;
  words.resize(rows * groups * kInt8Group / 4);
  scale.resize(rows * groups);
  correction.resize(rows * groups * (weights == DType::kI4 ? 2 : 1));
}

void Int8Rows::Set(int64_t row, const float* x, int64_t columns) {
  HWY_DYNAMIC_DISPATCH(SetRow)(this, row, x, columns);
}

}  // namespace coppice::kernels::cpu
#endif  // HWY_ONCE
