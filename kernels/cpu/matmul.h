// y = x W^T over a packed matrix. Each y[r][n] is the bias plus one chain of multiply-adds over
// k = 0, 1, 2, ... So its bits do not depend on the batch, the tile or the thread. With bf16 weights
// on AVX-512 BF16, a chain of dot products of two instead (matmul_bf16.h); with int8 or int4
// weights, of groups (matmul_int8.h).
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_team.h"
#include "kernels/cpu/int8.h"
#include "kernels/cpu/packed_matrix.h"

namespace coppice::kernels::cpu {

struct MatMulArgs {
  const CpuMatrix* w = nullptr;
  const float* x = nullptr;  // [rows, w->columns]
  int64_t rows = 0;
  float* y = nullptr;           // [rows, w->rows]
  const float* bias = nullptr;  // [w->rows] or null
  bool accumulate = false;      // y += instead of y =
};

// Memory of MatMul, kept from call to call: the inputs as the weights want them.
struct MatMulScratch {
  std::vector<uint32_t> pairs;  // for bf16 dot products
  Int8Rows int8;
};

void MatMul(const MatMulArgs& args, ThreadTeam* team, MatMulScratch* scratch);

}  // namespace coppice::kernels::cpu
