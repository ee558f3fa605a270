// Matrix products with weights in blocks of 8 or 4 bits (block_matrix.h). The codes stay packed until
// they are in registers; there each becomes the value that a 16-bit matrix made of the blocks has.
// Sums have the order of row_product.h, so the product has the bits of RowProduct with that matrix,
// and a row's bits do not depend on other rows. Enqueues one launch on a stream and returns; launch
// errors are left for cudaGetLastError.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"

namespace coppice::kernels::cuda {

// y[rows, outputs] = x[rows, inputs] w[outputs, inputs]^T, then + bias, then + y with accumulate.
// All in device memory, aligned to 16 bytes.
struct BlockProductArgs {
  const void* w = nullptr;
  const void* x = nullptr;
  void* y = nullptr;            // f32 or `type`
  bool gated = false;           // y[rows, outputs / 2] = SwiGLU of the product, gates, then ups
  const float* bias = nullptr;  // [outputs] or nullptr
  DType w_type = DType::kQ8_0;  // Q8_0 or Q4_0
  DType type = DType::kBF16;    // of x and of the values of w: bf16 or f16
  DType y_type = DType::kBF16;
  int32_t rows = 0;
  int64_t outputs = 0, inputs = 0;
  bool accumulate = false;
  // As in RowProductArgs.
  float* partials = nullptr;
  size_t partial_bytes = 0;
  uint32_t* counters = nullptr;
  int64_t counter_count = 0;
};

// Whether such a matrix can be multiplied: rows of x must begin at 16 bytes.
constexpr bool CanMultiplyBlocks(int64_t inputs) { return inputs % 8 == 0; }
// Whether the product may be gated: no panel has both gates and ups.
constexpr bool CanGateBlocks(DType type, DType y_type, int64_t outputs) {
  return y_type == type && outputs % 32 == 0;
}

void BlockProduct(const BlockProductArgs& args, cudaStream_t stream);

}  // namespace coppice::kernels::cuda
