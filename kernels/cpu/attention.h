// Forest attention over the paged pool. A row's context is cut into chunks of 16 positions counted
// from position 0, wherever the tokens lie (prefix block, scratch, branch run); softmax runs online
// from chunk to chunk. So the bits of a row depend on its query and its context alone. Rows of one
// table pass together over each block (all heads of a GQA group too), which reads K and V from
// memory once. Online softmax: Milakov and Gimelshein, "Online normalizer calculation for softmax",
// 2018, algorithm 3.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "base/thread_team.h"
#include "kernels/cpu/kv_pool.h"

namespace coppice::kernels::cpu {

// What each row of a pass may see, as flat arrays. Row r sees, in position order: the first
// prefix_len[r] tokens of block table row_table[r], then the tokens in the slots
// chain[chain_begin[r] .. chain_begin[r+1]). A row always sees itself: its own slot is the last of
// its context (the last chain entry, or, for a prefill row, place prefix_len[r] - 1 of its table).
// Context length = prefix_len + chain length = position + 1.
struct AttentionContext {
  absl::Span<const int32_t> row_table;    // [rows] index into table_begin
  absl::Span<const int32_t> prefix_len;   // [rows] tokens
  absl::Span<const int32_t> chain_begin;  // [rows + 1]
  absl::Span<const int32_t> chain;        // slots
  absl::Span<const int32_t> table_begin;  // [tables + 1]
  absl::Span<const int32_t> table;        // block ids
};

struct AttentionArgs {
  const float* qkv = nullptr;  // [rows, (q_heads + 2 kv_heads) * head_dim], rotated
  int q_heads = 0;
  const AttentionContext* context = nullptr;
  int layer = 0;
  const CpuKvPool* pool = nullptr;
  float* out = nullptr;  // [rows, q_heads * head_dim]
};

void Attention(const AttentionArgs& args, ThreadTeam* team);

}  // namespace coppice::kernels::cpu
