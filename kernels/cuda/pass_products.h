// The matrix products of a pass, found by running the pass over ops that only take notes.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/cublas_matmul.h"

namespace coppice::kernels::cuda {

struct PassProduct {
  const Weight* w = nullptr;
  Tensor x, y;
  bool accumulate = false;
};

// The product of so many rows. product.w is a CudaWeight; the tensors lie in device memory.
MatMulArgs ArgsOf(const PassProduct& product, int64_t rows);

// In their order, of a step that has rows and needs; those of every layer. Nothing is enqueued.
std::vector<PassProduct> ListProducts(Pass* pass);

}  // namespace coppice::kernels::cuda
