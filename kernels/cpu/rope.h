// Norms q and k, applies rotary positions to them, and stores K and V in the pool.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/cpu/gain.h"
#include "kernels/cpu/kv_pool.h"
#include "kernels/rope_table.h"

namespace coppice::kernels::cpu {

struct RopeAndStoreArgs {
  float* qkv = nullptr;  // [rows, (q_heads + 2 kv_heads) * head_dim], q and k changed in place
  absl::Span<const int32_t> positions;  // [rows]
  absl::Span<const int32_t> slots;      // [rows]
  int q_heads = 0;
  NormArgs q_norm, k_norm;              // without a gain: none
  const HostRopeTable* rope = nullptr;  // nullptr: nothing rotates
  int layer = 0;
  CpuKvPool* pool = nullptr;
};

// Rows [begin, end).
void RopeAndStoreKv(const RopeAndStoreArgs& args, int64_t begin, int64_t end);

}  // namespace coppice::kernels::cpu
