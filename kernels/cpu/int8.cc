#include "kernels/cpu/int8.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/block_panel.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/int8.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kGroup = 32;  // inputs that share a scale
constexpr float kLargest = 127;

// Quantises a group of values and returns the scale. sums: the sum of q over each kSummed of them.
template <int kSummed>
float Quantise(const float* values, int8_t* q, int32_t* sums) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<int8_t, decltype(df)> dq;
  const auto lanes = static_cast<int>(hn::Lanes(df));
  // Bits of magnitudes are ordered as the magnitudes, with infinity and NaN last.
  auto most = hn::Zero(di);
  for (int i = 0; i < kGroup; i += lanes)
    most = hn::Max(most, hn::BitCast(di, hn::Abs(hn::LoadU(df, values + i))));
  const auto bits = hn::MaxOfLanes(di, most);
  const float largest = hn::GetLane(hn::BitCast(df, bits));
  const bool finite = hn::GetLane(bits) < 0x7f800000;
  const float scale = finite ? largest / kLargest : NAN;
  // A scale below the normal numbers would make the quotient infinite.
  if (!finite || scale < 1.17549435e-38f) {
    std::fill_n(q, kGroup, int8_t{0});
    std::fill_n(sums, kGroup / kSummed, 0);
    return finite ? 0 : scale;
  }
  const auto per_step = hn::Set(df, 1 / scale), half = hn::Set(df, 0.5f);
  const auto high = hn::Set(df, kLargest), low = hn::Set(df, -kLargest);
  for (int part = 0; part < kGroup / kSummed; ++part) {
    auto sum = hn::Zero(di);
    for (int i = part * kSummed; i < (part + 1) * kSummed; i += lanes) {
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

// Of the 64 values of a block of a row, `at` in [blocks][rows].
template <int kSummed>
void SetBlock(Int8Rows* rows, int64_t at, const float* values) {
  constexpr int kSums = kGroup / kSummed;
  auto* const q = reinterpret_cast<int8_t*>(rows->words.data()) + at * kBlockInputs;
  for (int g = 0; g < kBlockInputs / kGroup; ++g) {
    int32_t sums[kSums];
    const int64_t place = at * (kBlockInputs / kGroup) + g;
    const float scale = Quantise<kSummed>(values + g * kGroup, q + g * kGroup, sums);
    rows->scale[place] = scale;
    for (int s = 0; s < kSums; ++s) {
      if (rows->form.scaled) {
        rows->scaled_sum[place * kSums + s] = scale * static_cast<float>(sums[s]);
      } else {
        rows->correction[place * kSums + s] = -rows->form.offset * sums[s];
      }
    }
  }
}

template <int kSummed>
void SetRowAs(Int8Rows* rows, int64_t row, const float* x, int64_t columns) {
  for (int64_t b = 0; b < InputBlocks(columns); ++b) {
    const float* values = x + b * kBlockInputs;
    float last[kBlockInputs];
    if (columns - b * kBlockInputs < kBlockInputs) {
      std::fill(std::copy(values, x + columns, last), last + kBlockInputs, 0.0f);
      values = last;
    }
    SetBlock<kSummed>(rows, b * rows->rows + row, values);
  }
}

void SetRow(Int8Rows* rows, int64_t row, const float* x, int64_t columns) {
  if (rows->form.summed == 16) return SetRowAs<16>(rows, row, x, columns);
  SetRowAs<32>(rows, row, x, columns);
}

}  // namespace HWY_NAMESPACE
}  // namespace coppice::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::kernels::cpu {

HWY_EXPORT(SetRow);

Int8Form Int8FormFor(DType weights) {
  return WithBlockForm(weights, [](auto form) {
    using Form = decltype(form);
    return Int8Form{Form::kGroup, Form::kOffset, Form::Scales::kMinimum};
  });
}

void Int8Rows::Resize(int64_t row_count, int64_t columns, DType weights) {
  const int64_t blocks = row_count * InputBlocks(columns);
  rows = row_count;
  form = Int8FormFor(weights);
  words.resize(blocks * kBlockInputs / 4);
  scale.resize(blocks * 2);
  correction.resize(form.scaled ? 0 : blocks * kBlockInputs / form.summed);
  scaled_sum.resize(form.scaled ? blocks * kBlockInputs / form.summed : 0);
}

void Int8Rows::Set(int64_t row, const float* x, int64_t columns) {
  HWY_DYNAMIC_DISPATCH(SetRow)(this, row, x, columns);
}

}  // namespace coppice::kernels::cpu
#endif  // HWY_ONCE
