#include "kernels/cpu/elementwise.h"

#include <cmath>
#include <cstring>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// For sums the lanes are capped at 8, so that AVX2 and AVX-512 add in the same order. Elementwise
// operations use as many lanes as the machine has.
using D8 = hn::CappedTag<float, 8>;
using DAll = hn::ScalableTag<float>;
inline constexpr int64_t kLanes8 = static_cast<int>(hn::MaxLanes(D8()));
inline constexpr int64_t kLanesAll = static_cast<int>(hn::MaxLanes(DAll()));

// The sum over the row of add(acc, x): four chains of lanes, joined pairwise, then the remainder in
// order.
template <class AddVector, class AddOne>
HWY_INLINE float SumOver(const float* HWY_RESTRICT x, int64_t n, AddVector add, AddOne add_one) {
  const D8 d;
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * kLanes8 <= n; i += 4 * kLanes8) {
    sum0 = add(sum0, hn::LoadU(d, x + i));
    sum1 = add(sum1, hn::LoadU(d, x + i + kLanes8));
    sum2 = add(sum2, hn::LoadU(d, x + i + 2 * kLanes8));
    sum3 = add(sum3, hn::LoadU(d, x + i + 3 * kLanes8));
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
  for (; i < n; ++i) sum = add_one(sum, x[i]);
  return sum;
}

float Sum(const float* x, int64_t n) {
  const auto add = [](auto sum, auto v) HWY_ATTR { return hn::Add(sum, v); };
  return SumOver(x, n, add, [](float sum, float v) { return sum + v; });
}

// Of x - mean.
float SumOfSquares(const float* x, float mean, int64_t n) {
  const auto add = [mean](auto sum, auto v) HWY_ATTR {
    const auto centred = hn::Sub(v, hn::Set(D8(), mean));
    return hn::MulAdd(centred, centred, sum);
  };
  return SumOver(x, n, add, [mean](float sum, float v) { return sum + (v - mean) * (v - mean); });
}

// out = (x - mean) * scale * gain + bias. The tail is padded: the same instructions give the same
// bits.
void Normalise(const float* x, float mean, float scale, const NormArgs& norm, int64_t n,
               float* out) {
  const D8 d;
  int64_t i = 0;
  for (; i + kLanes8 <= n; i += kLanes8) {
    auto value = hn::LoadU(d, x + i);
    if (norm.kind == NormKind::kLayer) value = hn::Sub(value, hn::Set(d, mean));
    value = hn::Mul(hn::Mul(value, hn::Set(d, scale)), hn::LoadU(d, norm.gain + i));
    if (norm.bias != nullptr) value = hn::Add(value, hn::LoadU(d, norm.bias + i));
    hn::StoreU(value, d, out + i);
  }
  for (; i < n; ++i) {
    const float value = norm.kind == NormKind::kLayer ? x[i] - mean : x[i];
    out[i] = value * scale * norm.gain[i] + (norm.bias == nullptr ? 0.0f : norm.bias[i]);
  }
}

void NormEachRow(const NormArgs& norm, const float* x, int64_t rows, int64_t n, float* out) {
  for (int64_t r = 0; r < rows; ++r, x += n, out += n) {
    const float count = static_cast<float>(n);
    const float mean = norm.kind == NormKind::kLayer ? Sum(x, n) / count : 0.0f;
    const float scale = 1.0f / std::sqrt(SumOfSquares(x, mean, n) / count + norm.epsilon);
    Normalise(x, mean, scale, norm, n, out);
  }
}

void AddScaledArrays(float* HWY_RESTRICT x, const float* HWY_RESTRICT y, float scale,
                     int64_t count) {
  const DAll d;
  int64_t i = 0;
  for (; i + kLanesAll <= count; i += kLanesAll) {
    const auto added = hn::Mul(hn::LoadU(d, y + i), hn::Set(d, scale));
    hn::StoreU(hn::Add(hn::LoadU(d, x + i), added), d, x + i);
  }
  for (; i < count; ++i) x[i] += y[i] * scale;
}

void ScaleArray(float* HWY_RESTRICT x, float factor, int64_t count) {
  const DAll d;
  int64_t i = 0;
  for (; i + kLanesAll <= count; i += kLanesAll)
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor)), d, x + i);
  for (; i < count; ++i) x[i] *= factor;
}

}  // namespace HWY_NAMESPACE
}  // namespace coppice::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::kernels::cpu {

HWY_EXPORT(NormEachRow);
HWY_EXPORT(AddScaledArrays);
HWY_EXPORT(ScaleArray);

void NormRows(const NormArgs& norm, const float* x, int64_t rows, int64_t n, float* out) {
  if (norm.gain != nullptr) return HWY_DYNAMIC_DISPATCH(NormEachRow)(norm, x, rows, n, out);
  if (x != out) std::memcpy(out, x, static_cast<size_t>(rows * n) * sizeof(float));
}

void AddScaled(float* x, const float* y, float scale, int64_t count) {
  HWY_DYNAMIC_DISPATCH(AddScaledArrays)(x, y, scale, count);
}

void Scale(float* x, float factor, int64_t count) {
  HWY_DYNAMIC_DISPATCH(ScaleArray)(x, factor, count);
}

}  // namespace coppice::kernels::cpu
#endif  // HWY_ONCE
