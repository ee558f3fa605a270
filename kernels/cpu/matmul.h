// y = x W^T over a packed matrix. Each y[r][n] is the bias plus one chain of multiply-adds over k =
// 0, 1, 2, ... So its bits do not depend on the batch, the tile or the thread. With bf16 weights on
// AVX-512 BF16, a chain of dot products of two instead (matmul_bf16.h); with integer weights, of
// groups (matmul_blocks.h).
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_team.h"
#include "kernels/cpu/gain.h"
#include "kernels/cpu/int8.h"
#include "kernels/cpu/packed_matrix.h"

namespace coppice::kernels::cpu {

struct MatMulArgs {
  const CpuMatrix* w = nullptr;
  const float* x = nullptr;  // [rows, w->columns]
  int64_t rows = 0;
  float* y = nullptr;           // [rows, w->rows], rows y_stride apart
  int64_t y_stride = 0;         // set by MatMul
  const float* bias = nullptr;  // [w->rows] or null
  bool accumulate = false;      // y += instead of y =
  // Unless it has no gain, x is normed first. Only for rows for which PreparesOwnRows is true.
  NormArgs norm;
};

// The inputs of a product in the forms that the parts of the weights need.
struct PreparedInputs {
  std::vector<float> normed;    // x after its norm, if it has one
  std::vector<uint32_t> pairs;  // for bf16 dot products
  std::vector<Int8Rows> int8;   // one for each form
};

// Memory of MatMul, kept from call to call. Each thread prepares a few rows itself, because moving
// what another thread has written from core to core takes longer (docs/decisions.md, "Few rows").
struct MatMulScratch {
  struct alignas(64) OfThread {
    uint64_t call = 0;  // the call of MatMul for which the inputs were prepared
    PreparedInputs inputs;
  };
  uint64_t calls = 0;
  PreparedInputs shared;  // inputs of many rows, for all threads
  std::vector<OfThread> own;
};

// Whether a product takes over the norm of this many rows: each thread then prepares them itself.
bool PreparesOwnRows(int64_t rows, int64_t columns);

void MatMul(const MatMulArgs& args, ThreadTeam* team, MatMulScratch* scratch);

}  // namespace coppice::kernels::cpu
