// Norms, sums and scaling over rows. The bits of a row depend only on that row.
#pragma once

#include <cstdint>

#include "kernels/cpu/gain.h"

namespace coppice::kernels::cpu {

// out = norm(x). x, out [rows, n]; may alias.
void NormRows(const NormArgs& norm, const float* x, int64_t rows, int64_t n, float* out);

// x += scale * y, [count].
void AddScaled(float* x, const float* y, float scale, int64_t count);

// x *= factor, [count].
void Scale(float* x, float factor, int64_t count);

}  // namespace coppice::kernels::cpu
