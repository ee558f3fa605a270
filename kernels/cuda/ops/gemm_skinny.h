// Matrix products of few rows by tensor cores: the weights are read once, by blocks that share the
// inputs among them. Enqueues one launch on a stream and returns; launch errors are left for
// cudaGetLastError. Which products take it is measured (product_tuner.h).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"

namespace coppice::kernels::cuda {

inline constexpr int64_t kMostSkinnyRows = 64;
inline constexpr int64_t kSkinnyTile = 64;    // outputs of one block
inline constexpr int64_t kSkinnyDepth = 64;   // inputs of one stage
inline constexpr int kMostSkinnyCluster = 8;  // splits

// y[rows, outputs] = x[rows, inputs] w[outputs, inputs]^T, then + bias, then + y with accumulate.
// All in device memory, aligned to 16 bytes; w and x bf16. No launch of the stream may write w: it
// is read before the launch before has ended, where launches overlap (device/overlap.h).
struct SkinnyArgs {
  const void* w = nullptr;
  const void* x = nullptr;
  void* y = nullptr;   // f32 or bf16
  bool gated = false;  // y[rows, outputs / 2] = SwiGLU of the product, gates, then ups; bf16
  const float* bias = nullptr;  // [outputs] or nullptr
  DType y_type = DType::kBF16;
  int32_t rows = 0;
  int64_t outputs = 0, inputs = 0;
  bool accumulate = false;
  // The inputs are cut into this many runs of stages, each summed by its own block. Their sums are
  // added in the order of the runs: the bits depend on `splits`, not on which block was last, nor on
  // `clustered`, nor on the other rows.
  int splits = 1;
  // The blocks of a tile are a cluster and read each other's sums in shared memory, with neither
  // partials nor counters: compute capability 9.0, at most kMostSkinnyCluster splits.
  bool clustered = false;
  float* partials = nullptr;     // [SkinnyPartialBytes], unless splits is 1 or clustered
  uint32_t* counters = nullptr;  // [tiles of outputs], zero before; the launch leaves them zero
};

constexpr int64_t SkinnyTiles(int64_t outputs) { return (outputs + kSkinnyTile - 1) / kSkinnyTile; }
// Whether the kernel takes such a product.
constexpr bool CanSkinny(DType type, DType y_type, int64_t rows, int64_t outputs, int64_t inputs) {
  return type == DType::kBF16 && (y_type == DType::kBF16 || y_type == DType::kF32) &&
         rows <= kMostSkinnyRows && outputs % 8 == 0 && inputs % 8 == 0;
}
// Whether it may be gated.
constexpr bool CanSkinnyGate(DType y_type, int64_t outputs) {
  return y_type == DType::kBF16 && outputs % 16 == 0;
}
constexpr int64_t MostSkinnySplits(int64_t inputs) {
  return (inputs + kSkinnyDepth - 1) / kSkinnyDepth;
}
// Groups of 8 rows that the kernel computes: what it is built for.
constexpr int64_t SkinnyGroups(int64_t rows) {
  const int64_t groups = (rows + 7) / 8;
  return groups == 7 ? 8 : groups;
}
constexpr size_t SkinnyPartialBytes(int64_t rows, int64_t outputs, int splits) {
  if (splits == 1) return 0;
  return static_cast<size_t>(SkinnyTiles(outputs) * splits * kSkinnyTile * SkinnyGroups(rows) * 8) *
         sizeof(float);
}

void GemmSkinny(const SkinnyArgs& args, cudaStream_t stream);

}  // namespace coppice::kernels::cuda
