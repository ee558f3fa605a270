// RMSNorm, SwiGLU and addition over rows. The bits of a row depend only on that row.
#pragma once

#include <cstdint>

namespace coppice::kernels::cpu {

// out = x / sqrt(mean(x^2) + epsilon) * gain. x, out [rows, n]; may alias. gain [n].
void RmsNorm(const float* x, const float* gain, float epsilon, int64_t rows, int64_t n, float* out);

// gate_up [rows, 2 n]: gate then up; out [rows, n] = gate / (1 + exp(-gate)) * up.
void SwiGlu(const float* gate_up, int64_t rows, int64_t n, float* out);

// x += y, [count].
void Add(float* x, const float* y, int64_t count);

}  // namespace coppice::kernels::cpu
