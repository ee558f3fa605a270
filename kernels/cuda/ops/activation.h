// The activations of the feed-forward network, for the kernels that apply them. For .cu files. Each
// is NaN or infinite where its argument is.
#pragma once

#include "kernels/cuda/device/device.h"

namespace coppice::kernels::cuda {

// x / (1 + exp(-t)). With e = exp(-|t|) nothing overflows: x / (1 + e) for t >= 0, else x e / (1 +
// e).
DEV_FUNCTION float TimesSigmoid(float x, float t) {
  const float e = expf(-fabsf(t));
  return (t >= 0.0f ? x : x * e) / (1.0f + e);
}

DEV_FUNCTION float Silu(float x) { return TimesSigmoid(x, x); }

// x Phi(x), Phi by the complementary error function: no digits cancel for negative x.
DEV_FUNCTION float Gelu(float x) { return 0.5f * x * erfcf(x * -0.707106781f); }

// x / 2 (1 + tanh(t)), t = sqrt(2 / pi) (x + 0.044715 x^3), as x times the sigmoid of 2 t.
DEV_FUNCTION float GeluTanh(float x) {
  return TimesSigmoid(x, x * (1.59576912f + 0.0713548163f * x * x));
}

DEV_FUNCTION float Relu(float x) { return x < 0.0f ? x - x : x; }

}  // namespace coppice::kernels::cuda
