// The matrix products of a pass, found by running the pass over ops that only record, and which op
// after a product is joined with it: the product computes SwiGLU if its kernel can, and the op of
// rotary positions adds a bias before it.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/products/cublas_matmul.h"

namespace coppice::kernels::cuda {

struct PassProduct {
  const Weight* w = nullptr;
  Tensor x, y;
  bool accumulate = false;
  bool adds_bias = true;  // else it is left to RopeAndStoreKv
  Tensor gated;           // SwiGLU of y goes here, unless it is empty
};

// Lets a product take over what follows it, where that works on its y. False: it cannot.
bool JoinSwiGlu(Activation f, const Tensor& gate_up, const Tensor& out, PassProduct* product);
// The bias that rotary positions are to add, nullptr: none.
const float* JoinRope(const Tensor& qkv, PassProduct* product);

// The product of this many rows. product.w is a CudaWeight; the tensors lie in device memory.
MatMulArgs ArgsOf(const PassProduct& product, int64_t rows);

// The products in order, of a step that has rows and needs, for every layer. Nothing is enqueued.
std::vector<PassProduct> ListProducts(Pass* pass);
// Whether the pass also has products of experts, which are not in that list.
bool MixesExperts(Pass* pass);

}  // namespace coppice::kernels::cuda
