// Matrix products with weights in blocks of 8 or 4 bits (block_matrix.h). The codes stay packed until
// they are in registers; there each becomes the value that a 16-bit matrix made of the blocks has.
// Sums have the order of row_product.h, so the product has the bits of RowProduct with that matrix,
// and a row's bits do not depend on other rows. Enqueues one launch on a stream and returns; launch
// errors are left for cudaGetLastError.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/ops/row_product.h"

namespace coppice::kernels::cuda {

// As in RowProductArgs, but w has blocks. type: of x and of the values of w, bf16 or f16.
struct BlockProductArgs : RowProductArgs {
  DType w_type = DType::kQ8_0;  // Q8_0 or Q4_0
  bool gated = false;           // y[rows, outputs / 2] = SwiGLU of the product, gates, then ups
};

// Whether such a matrix can be multiplied: rows of x must begin at 16 bytes.
constexpr bool CanMultiplyBlocks(int64_t inputs) { return inputs % 8 == 0; }
// Whether the product may be gated: no panel has both gates and ups.
constexpr bool CanGateBlocks(DType type, DType y_type, int64_t outputs) {
  return y_type == type && outputs % 32 == 0;
}

void BlockProduct(const BlockProductArgs& args, cudaStream_t stream);

}  // namespace coppice::kernels::cuda
