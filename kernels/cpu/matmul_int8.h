// MatMul over int8 and int4 weights (int8.h, int4.h), with its input as int8: products and sums
// within a group of the weights are exact integers, each group is scaled and added in f32, in input
// order. So the bits of an output depend neither on the batch nor, from AVX2 on, on the instruction
// set.
#pragma once

#include <cstdint>

#include "kernels/cpu/int8.h"
#include "kernels/cpu/kernel_target.h"
#include "kernels/cpu/matmul.h"

namespace coppice::kernels::cpu {

// The outputs of panels [panel_begin, panel_end), all rows. x: of args.x, for these weights. Uses
// the instructions of `target`: on AVX-512 the dot products of int8 (VNNI) where the processor has
// them, else AVX2.
void MatMulInt8Range(const MatMulArgs& args, const Int8Rows& x, KernelTarget target,
                     int64_t panel_begin, int64_t panel_end);

}  // namespace coppice::kernels::cpu
