// exp(x) of f32 vectors for x <= 0 (SiLU, and softmax after subtracting the maximum). The same x
// gives the same bits in every lane. Compiled once per target.
#if defined(COPPICE_KERNELS_CPU_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef COPPICE_KERNELS_CPU_EXP_INL_H_
#undef COPPICE_KERNELS_CPU_EXP_INL_H_
#else
#define COPPICE_KERNELS_CPU_EXP_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::kernels::cpu {
namespace HWY_NAMESPACE {

// Relative error below 2e-7; 0 below -87 (-infinity included); NaN gives NaN. exp(0) is exactly 1.
// x = q ln 2 + r with |r| <= ln(2) / 2 and ln 2 in two parts (Cody and Waite), exp(r) by its Taylor
// series to r^7.
template <class D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> ExpOfNegative(D d, hwy::HWY_NAMESPACE::Vec<D> x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  const auto lowest = hn::Set(d, -87.0f);
  const auto clamped = hn::Max(x, lowest);
  const auto q = hn::NearestInt(hn::Mul(clamped, hn::Set(d, 1.44269504f)));
  const auto qf = hn::ConvertTo(d, q);
  auto r = hn::MulAdd(qf, hn::Set(d, -0.693359375f), clamped);
  r = hn::MulAdd(qf, hn::Set(d, 2.12194440e-4f), r);
  auto p = hn::Set(d, 1.0f / 5040.0f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 720.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 120.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 24.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 6.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const auto power = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(q, hn::Set(di, 127))));
  const auto result = hn::IfThenElseZero(hn::Ge(x, lowest), hn::Mul(p, power));
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

}  // namespace HWY_NAMESPACE
}  // namespace coppice::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
