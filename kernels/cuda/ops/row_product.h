// Matrix products for exact mode: the bits of a row depend only on the row and the weights, not on
// the number and contents of other rows. Any number of rows, any type, any shape. Every output is
// summed in one order that follows from the shape of the weights: runs of inputs, each from its
// first input to its last, and then the runs from the first to the last. The assignment of rows,
// outputs and runs to blocks is free, and depends on the rows. Enqueues one launch on a stream and
// returns; launch errors are left for cudaGetLastError.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"

namespace coppice::kernels::cuda {

// y[rows, outputs] = x[rows, inputs] w[outputs, inputs]^T, then + bias, then + y with accumulate.
// All in device memory, aligned to 16 bytes.
struct RowProductArgs {
  const void* w = nullptr;
  const void* x = nullptr;
  void* y = nullptr;            // f32 or `type`
  const float* bias = nullptr;  // [outputs] or nullptr
  DType type = DType::kBF16, y_type = DType::kBF16;
  int32_t rows = 0;
  int64_t outputs = 0, inputs = 0;
  bool accumulate = false;
  // Where blocks that share the sums of a tile leave them, and count arrivals: counters are zero
  // before, and the launch leaves them zero. With too little of either, one block sums all runs of
  // a tile.
  float* partials = nullptr;
  size_t partial_bytes = 0;
  uint32_t* counters = nullptr;
  int64_t counter_count = 0;
};

inline constexpr int64_t kRunUnit = 64;  // inputs; runs begin at multiples

// Whether tensor cores compute it. Other products take a plain kernel.
constexpr bool HasTensorRows(DType type, int64_t inputs) {
  return type != DType::kF32 && inputs % 8 == 0;
}
// Runs that the inputs are cut into: enough for a few rows to keep a large device busy. Depends on
// the shape only, on every device.
constexpr int ProductRuns(int64_t outputs, int64_t inputs) {
  constexpr int64_t kBlocks = 264, kTile = 64, kLeastUnits = 4, kMost = 8;
  const int64_t tiles = (outputs + kTile - 1) / kTile;
  const int64_t units = (inputs + kRunUnit - 1) / kRunUnit;
  return static_cast<int>(
      std::max<int64_t>(1, std::min({kBlocks / tiles, units / kLeastUnits, kMost})));
}

void RowProduct(const RowProductArgs& args, cudaStream_t stream);

}  // namespace coppice::kernels::cuda
