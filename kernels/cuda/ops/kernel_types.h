// From the DTypes of launch.h to the types of kernels, and addresses in the pool. For .cu files.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/ops/launch.h"

namespace coppice::kernels::cuda {

// Calls f with a value of the kernels' type: float, dev::bf16 or dev::f16.
template <class F>
void WithType(DType dtype, F f) {
  if (dtype == DType::kF32) {
    f(float());
  } else if (dtype == DType::kBF16) {
    f(dev::bf16());
  } else {
    f(dev::f16());
  }
}

// The same with the types of activations and pool, where CanStoreKv (launch.h) allows them.
template <class F>
void WithTypes(DType activations, DType pool, F f) {
  if (pool == DType::kF16) {
    f(dev::f16(), dev::f16());
  } else if (activations == DType::kF32) {
    pool == DType::kF32 ? f(float(), float()) : f(float(), dev::bf16());
  } else {
    pool == DType::kF32 ? f(dev::bf16(), float()) : f(dev::bf16(), dev::bf16());
  }
}

inline unsigned CeilDiv(int64_t a, int64_t b) { return static_cast<unsigned>((a + b - 1) / b); }

// K or V of one head of one slot, [head_dim].
template <class T>
DEV_FUNCTION T* PoolRow(const DevicePool& pool, int layer, bool value, int32_t slot, int kv_head) {
  const int64_t plane = int64_t{2} * layer + value;
  const int64_t tile = (plane * pool.blocks + slot / kBlockSize) * pool.kv_heads + kv_head;
  return static_cast<T*>(pool.data) + (tile * kBlockSize + slot % kBlockSize) * pool.head_dim;
}

}  // namespace coppice::kernels::cuda
