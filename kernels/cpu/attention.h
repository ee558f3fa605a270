// Forest attention over the paged pool. A row's context is cut into chunks of 16 positions, counted
// from position 0 wherever the tokens lie (prefix block, scratch, branch run), with an online
// softmax from chunk to chunk. So the bits of a row depend only on its query and its context. All
// rows of a block table, and all heads of a GQA group, visit a block together, so its K and V are
// read from memory once. These rows or heads are divided only if threads would otherwise be idle.
// Online softmax: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018,
// algorithm 3. With a window the first chunk that a row sees may be seen in part.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "base/thread_team.h"
#include "kernels/cpu/kv_pool.h"

namespace coppice::kernels::cpu {

// The context of each row of a pass, as flat arrays. Row r sees, in position order, the first
// prefix_len[r] tokens of block table row_table[r], then the tokens in the slots
// chain[chain_begin[r] .. chain_begin[r+1]). The last of these is always the row's own slot: the
// last chain entry, or, for a prefill row, place prefix_len[r] - 1 of its table.
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
  AttentionRule rule;
  const AttentionContext* context = nullptr;
  int layer = 0;
  const CpuKvPool* pool = nullptr;
  float* out = nullptr;  // [rows, q_heads * head_dim]
};

void Attention(const AttentionArgs& args, ThreadTeam* team);

}  // namespace coppice::kernels::cpu
