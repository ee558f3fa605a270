// MatMul over bf16 weights with the bf16 dot products of AVX-512: a row of x is rounded to bf16,
// products and sums are f32. Twice the products per instruction, and no weight is widened. Used by
// MatMul when the kernel target is AVX-512 BF16 (kernel_target.h).
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_team.h"
#include "kernels/cpu/matmul.h"

namespace coppice::kernels::cpu {

// Whether the processor and the compiler of this build have the instructions.
bool HasBf16Dot();

// x in pairs of bf16, as the kernel broadcasts them, in an order of its own: rows *
// PairsOf(columns) words, input 2 k in the low half, 0 after an odd last one. Writes the pairs of
// the inputs [begin, end); begin must be a multiple of 16, and so must end if it is less than
// columns.
constexpr int64_t PairsOf(int64_t columns) { return (columns + 1) / 2; }
void RoundToPairs(const float* x, int64_t rows, int64_t columns, int64_t begin, int64_t end,
                  uint32_t* pairs);

// The outputs of panels [panel_begin, panel_end), all rows. Each output is one chain of dot
// products of two in input order, so its bits do not depend on the batch. Requires HasBf16Dot().
// `pairs`: of args.x.
void MatMulBf16Range(const MatMulArgs& args, const uint32_t* pairs, int64_t panel_begin,
                     int64_t panel_end);

}  // namespace coppice::kernels::cpu
