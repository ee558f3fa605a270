// tanh(x) of f32 vectors. The same x gives the same bits in every lane. Compiled once per target.
#if defined(COPPICE_KERNELS_CPU_TANH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef COPPICE_KERNELS_CPU_TANH_INL_H_
#undef COPPICE_KERNELS_CPU_TANH_INL_H_
#else
#define COPPICE_KERNELS_CPU_TANH_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/cpu/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::kernels::cpu {
namespace HWY_NAMESPACE {

// (1 - e) / (1 + e) with e = exp(-2 |x|), and the sign of x. Absolute error below 2e-7; NaN gives
// NaN.
template <class D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> Tanh(D d, hwy::HWY_NAMESPACE::Vec<D> x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const auto one = hn::Set(d, 1.0f);
  const auto e = ExpOfNegative(d, hn::Mul(hn::Abs(x), hn::Set(d, -2.0f)));
  return hn::CopySign(hn::Div(hn::Sub(one, e), hn::Add(one, e)), x);
}

}  // namespace HWY_NAMESPACE
}  // namespace coppice::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
