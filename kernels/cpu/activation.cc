#include "kernels/cpu/activation.h"

#include "base/check.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/activation.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/tanh-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
inline constexpr int64_t kLanes = static_cast<int>(hn::MaxLanes(D()));

// x / (1 + exp(-s)): x / (1 + e) for s >= 0, otherwise x e / (1 + e), with e = exp(-|s|), which
// cannot overflow.
HWY_INLINE V TimesSigmoid(D d, V x, V s) {
  const auto e = ExpOfNegative(d, hn::Neg(hn::Abs(s)));
  const auto numerator = hn::IfThenElse(hn::Ge(s, hn::Zero(d)), x, hn::Mul(x, e));
  return hn::Div(numerator, hn::Add(hn::Set(d, 1.0f), e));
}

struct Silu {
  HWY_INLINE V operator()(D d, V x) const { return TimesSigmoid(d, x, x); }
};

// (1 + tanh(u)) / 2 is the sigmoid of 2 u.
struct GeluTanh {
  HWY_INLINE V operator()(D d, V x) const {
    constexpr float kTwiceRoot = 1.5957691216057308f;  // 2 sqrt(2 / pi)
    const auto cubic = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 0.044715f), hn::Set(d, 1.0f));
    return TimesSigmoid(d, x, hn::Mul(hn::Mul(x, hn::Set(d, kTwiceRoot)), cubic));
  }
};

// With a = |x| / sqrt(2): erfc(a) = t (a1 + t (a2 + t (a3 + t (a4 + t a5)))) exp(-a^2), t = 1 / (1 +
// 0.3275911 a).
struct Gelu {
  HWY_INLINE V operator()(D d, V x) const {
    const auto one = hn::Set(d, 1.0f);
    const auto a = hn::Mul(hn::Abs(x), hn::Set(d, 0.70710678f));
    const auto t = hn::Div(one, hn::MulAdd(a, hn::Set(d, 0.3275911f), one));
    auto p = hn::Set(d, 1.061405429f);
    p = hn::MulAdd(p, t, hn::Set(d, -1.453152027f));
    p = hn::MulAdd(p, t, hn::Set(d, 1.421413741f));
    p = hn::MulAdd(p, t, hn::Set(d, -0.284496736f));
    p = hn::MulAdd(p, t, hn::Set(d, 0.254829592f));
    const auto tail = hn::Mul(hn::Mul(p, t), ExpOfNegative(d, hn::Neg(hn::Mul(a, a))));
    const auto twice =
        hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(hn::Set(d, 2.0f), tail));
    return hn::Mul(hn::Mul(x, hn::Set(d, 0.5f)), twice);
  }
};

struct Relu {
  HWY_INLINE V operator()(D d, V x) const {
    return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x);  // NaN stays NaN
  }
};

// The remainder is padded: the same instructions give the same bits.
template <class Function>
void ActivateEach(bool gated, const float* in, int64_t rows, int64_t n, float* out) {
  const D d;
  const Function f;
  const auto at = [d, f, gated](const float* gate, const float* up) HWY_ATTR {
    const auto value = f(d, hn::LoadU(d, gate));
    return gated ? hn::Mul(value, hn::LoadU(d, up)) : value;
  };
  for (int64_t r = 0; r < rows; ++r, in += gated ? 2 * n : n, out += n) {
    const float* const up = in + n;
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) hn::StoreU(at(in + i, up + i), d, out + i);
    if (i == n) continue;
    float padded[2][kLanes] = {};
    for (int64_t j = i; j < n; ++j) {
      padded[0][j - i] = in[j];
      if (gated) padded[1][j - i] = up[j];
    }
    hn::StoreU(at(padded[0], padded[1]), d, padded[0]);
    for (int64_t j = i; j < n; ++j) out[j] = padded[0][j - i];
  }
}

void ActivateRows(Activation f, bool gated, const float* in, int64_t rows, int64_t n, float* out) {
  switch (f) {
    case Activation::kSilu:
      return ActivateEach<Silu>(gated, in, rows, n, out);
    case Activation::kGelu:
      return ActivateEach<Gelu>(gated, in, rows, n, out);
    case Activation::kGeluTanh:
      return ActivateEach<GeluTanh>(gated, in, rows, n, out);
    case Activation::kRelu:
      return ActivateEach<Relu>(gated, in, rows, n, out);
  }
}

void SoftCapArray(float* x, float cap, int64_t count) {
  const D d;
  const auto capped = [d, cap](const float* from) HWY_ATTR {
    return hn::Mul(Tanh(d, hn::Div(hn::LoadU(d, from), hn::Set(d, cap))), hn::Set(d, cap));
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(capped(x + i), d, x + i);
  if (i == count) return;
  float padded[kLanes] = {};
  for (int64_t j = i; j < count; ++j) padded[j - i] = x[j];
  hn::StoreU(capped(padded), d, padded);
  for (int64_t j = i; j < count; ++j) x[j] = padded[j - i];
}

}  // namespace HWY_NAMESPACE
}  // namespace coppice::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::kernels::cpu {

HWY_EXPORT(ActivateRows);
HWY_EXPORT(SoftCapArray);

void Activate(Activation f, bool gated, const float* in, int64_t rows, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(ActivateRows)(f, gated, in, rows, n, out);
}

void SoftCap(float* x, float cap, int64_t count) {
  HWY_DYNAMIC_DISPATCH(SoftCapArray)(x, cap, count);
}

}  // namespace coppice::kernels::cpu
#endif  // HWY_ONCE
