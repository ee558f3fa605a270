// The activation of an MLP over rows, gated or not, and soft caps. The bits of a value depend only
// on its own inputs.
#pragma once

#include <cstdint>

#include "kernels/backend.h"

namespace coppice::kernels::cpu {

// gated: in [rows, 2 n], gate then up, out = f(gate) * up. Otherwise in [rows, n], out = f(in), and
// may be in. out [rows, n].
//   SiLU       x / (1 + exp(-x))
//   GELU       x (1 + erf(x / sqrt(2))) / 2; erf is off by at most 1.5e-7 (Abramowitz and Stegun,
//              Handbook of Mathematical Functions, 7.1.26)
//   GELU tanh  x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
//   ReLU       max(x, 0)
void Activate(Activation f, bool gated, const float* in, int64_t rows, int64_t n, float* out);

// x = cap * tanh(x / cap), [count].
void SoftCap(float* x, float cap, int64_t count);

}  // namespace coppice::kernels::cpu
