// From the DTypes of launch.h to the types of kernels, and addresses in the pool. For .cu files.
#pragma once

#include <cstdint>
#include <type_traits>

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

// The same with the type of a pool, which may be codes of 8 bits.
template <class F>
void WithPoolType(DType dtype, F f) {
  dtype == DType::kI8 ? f(int8_t()) : WithType(dtype, f);
}

// The same with the types of activations and pool, where CanStoreKv (launch.h) allows them.
template <class F>
void WithTypes(DType activations, DType pool, F f) {
  if (pool == DType::kI8) {
    WithType(activations, [&](auto activation) { f(activation, int8_t()); });
  } else if (pool == DType::kF16) {
    f(dev::f16(), dev::f16());
  } else if (activations == DType::kF32) {
    pool == DType::kF32 ? f(float(), float()) : f(float(), dev::bf16());
  } else {
    pool == DType::kF32 ? f(dev::bf16(), float()) : f(dev::bf16(), dev::bf16());
  }
}

// K or V of one head of one slot, with the scale of codes.
inline int64_t VectorBytes(const DevicePool& pool) {
  if (pool.dtype == DType::kI8) return pool.head_dim + int64_t{sizeof(float)};
  return int64_t{pool.head_dim} * (pool.dtype == DType::kF32 ? 4 : 2);
}

inline unsigned CeilDiv(int64_t a, int64_t b) { return static_cast<unsigned>((a + b - 1) / b); }

// Whether a pool of P holds codes, whose scales (KvPoolShape in backend.h) lie behind those of a
// block and head.
template <class P>
constexpr bool kCodes = std::is_same_v<std::remove_const_t<P>, int8_t>;

// Place of the vectors of one block and head in a plane, K or V of a layer.
DEV_FUNCTION int64_t PoolTile(const DevicePool& pool, int layer, bool value, int32_t slot,
                              int kv_head) {
  const int64_t plane = int64_t{2} * layer + value;
  return (plane * pool.blocks + slot / kBlockSize) * pool.kv_heads + kv_head;
}

// K or V of one head of one slot, [head_dim].
template <class T>
DEV_FUNCTION T* PoolRow(const DevicePool& pool, int layer, bool value, int32_t slot, int kv_head) {
  const int64_t tile = PoolTile(pool, layer, value, slot, kv_head);
  T* const data = static_cast<T*>(pool.data);
  if constexpr (kCodes<T>) {
    const int64_t first = tile * kBlockSize * (pool.head_dim + int64_t{sizeof(float)});
    return data + first + slot % kBlockSize * pool.head_dim;
  } else {
    return data + (tile * kBlockSize + slot % kBlockSize) * pool.head_dim;
  }
}

// The scale of that vector in a pool of codes.
DEV_FUNCTION float* PoolScale(const DevicePool& pool, int layer, bool value, int32_t slot,
                              int kv_head) {
  const int32_t first = slot - slot % kBlockSize;
  int8_t* const codes = PoolRow<int8_t>(pool, layer, value, first, kv_head);
  return reinterpret_cast<float*>(codes + kBlockSize * pool.head_dim) + slot % kBlockSize;
}

}  // namespace coppice::kernels::cuda
