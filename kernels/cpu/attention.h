// Forest attention over the paged pool. A row's context is cut into chunks of 16 positions counted
// from position 0, wherever the tokens lie (prefix block, scratch, branch run); softmax runs online
// from chunk to chunk. So the bits of a row depend on its query and its context alone. Rows of one
// table pass together over each block (all heads of a GQA group too), which reads K and V from
// memory once. Online softmax: Milakov and Gimelshein, "Online normalizer calculation for softmax",
// 2018, algorithm 3.
#pragma once

#include <cstdint>

#include "kernels/cpu/kv_pool.h"
#include "kernels/cpu/thread_team.h"

namespace coppice::cpu {

struct AttentionArgs {
  const float* qkv = nullptr;  // [rows, (q_heads + 2 kv_heads) * head_dim], rotated
  int q_heads = 0;
  const AttentionContext* context = nullptr;
  int layer = 0;
  const CpuKvPool* pool = nullptr;
  float* out = nullptr;  // [rows, q_heads * head_dim]
};

void Attention(const AttentionArgs& args, ThreadTeam* team);

}  // namespace coppice::cpu
