#include "kernels/cpu/elementwise.h"

#include <cmath>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/exp-inl.h"

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

// Four chains of lanes, joined pairwise, then the remainder in order.
float SumOfSquares(const float* HWY_RESTRICT x, int64_t n) {
  const D8 d;
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * kLanes8 <= n; i += 4 * kLanes8) {
    const auto x0 = hn::LoadU(d, x + i), x1 = hn::LoadU(d, x + i + kLanes8);
    const auto x2 = hn::LoadU(d, x + i + 2 * kLanes8), x3 = hn::LoadU(d, x + i + 3 * kLanes8);
    sum0 = hn::MulAdd(x0, x0, sum0);
    sum1 = hn::MulAdd(x1, x1, sum1);
    sum2 = hn::MulAdd(x2, x2, sum2);
    sum3 = hn::MulAdd(x3, x3, sum3);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
  for (; i < n; ++i) sum += x[i] * x[i];
  return sum;
}

void RmsNormRows(const float* x, const float* HWY_RESTRICT gain, float epsilon, int64_t rows,
                 int64_t n, float* out) {
  const D8 d;
  for (int64_t r = 0; r < rows; ++r, x += n, out += n) {
    const float scale = 1.0f / std::sqrt(SumOfSquares(x, n) / static_cast<float>(n) + epsilon);
    int64_t i = 0;
    for (; i + kLanes8 <= n; i += kLanes8) {
      const auto scaled = hn::Mul(hn::LoadU(d, x + i), hn::Set(d, scale));
      hn::StoreU(hn::Mul(scaled, hn::LoadU(d, gain + i)), d, out + i);
    }
    for (; i < n; ++i) out[i] = x[i] * scale * gain[i];
  }
}

// gate / (1 + e) for gate >= 0, otherwise gate e / (1 + e), with e = exp(-|gate|), which cannot
// overflow.
template <class D>
HWY_INLINE hn::Vec<D> SiluTimes(D d, hn::Vec<D> gate, hn::Vec<D> up) {
  const auto e = ExpOfNegative(d, hn::Neg(hn::Abs(gate)));
  const auto numerator = hn::IfThenElse(hn::Ge(gate, hn::Zero(d)), gate, hn::Mul(gate, e));
  return hn::Mul(hn::Div(numerator, hn::Add(hn::Set(d, 1.0f), e)), up);
}

void SwiGluRows(const float* gate_up, int64_t rows, int64_t n, float* out) {
  const DAll d;
  for (int64_t r = 0; r < rows; ++r, gate_up += 2 * n, out += n) {
    const float* up = gate_up + n;
    int64_t i = 0;
    for (; i + kLanesAll <= n; i += kLanesAll) {
      hn::StoreU(SiluTimes(d, hn::LoadU(d, gate_up + i), hn::LoadU(d, up + i)), d, out + i);
    }
    if (i < n) {  // the tail, padded: the same instructions give the same bits
      HWY_ALIGN float padded[2][kLanesAll] = {};
      for (int64_t j = i; j < n; ++j) padded[0][j - i] = gate_up[j], padded[1][j - i] = up[j];
      hn::Store(SiluTimes(d, hn::Load(d, padded[0]), hn::Load(d, padded[1])), d, padded[0]);
      for (int64_t j = i; j < n; ++j) out[j] = padded[0][j - i];
    }
  }
}

void AddArrays(float* HWY_RESTRICT x, const float* HWY_RESTRICT y, int64_t count) {
  const DAll d;
  int64_t i = 0;
  for (; i + kLanesAll <= count; i += kLanesAll) {
    hn::StoreU(hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, x + i);
  }
  for (; i < count; ++i) x[i] += y[i];
}

}  // namespace HWY_NAMESPACE
}  // namespace coppice::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::kernels::cpu {

HWY_EXPORT(RmsNormRows);
HWY_EXPORT(SwiGluRows);
HWY_EXPORT(AddArrays);

void RmsNorm(const float* x, const float* gain, float epsilon, int64_t rows, int64_t n,
             float* out) {
  HWY_DYNAMIC_DISPATCH(RmsNormRows)(x, gain, epsilon, rows, n, out);
}

void SwiGlu(const float* gate_up, int64_t rows, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(SwiGluRows)(gate_up, rows, n, out);
}

void Add(float* x, const float* y, int64_t count) { HWY_DYNAMIC_DISPATCH(AddArrays)(x, y, count); }

}  // namespace coppice::kernels::cpu
#endif  // HWY_ONCE
