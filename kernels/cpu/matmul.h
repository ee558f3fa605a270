// y = x W^T over a packed matrix. Each y[r][n] is the bias plus one chain of multiply-adds over
// k = 0, 1, 2, ... So its bits do not depend on the batch, the tile or the thread.
#pragma once

#include <cstdint>

#include "base/thread_team.h"
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

void MatMul(const MatMulArgs& args, ThreadTeam* team);

}  // namespace coppice::kernels::cpu
