// Forest attention over the paged pool. A row's context is cut into chunks of 16 positions, counted
// from position 0 wherever the tokens lie (prefix block, scratch, branch run). A row visits its
// chunks in order, with an online softmax from chunk to chunk, and within a chunk every sum has one
// order. So the bits of a row depend only on its query and its context: not on which rows read a
// chunk with it, nor on where its other chunks lie. Rows that have the same block at a chunk read
// it together, so its K and V come from memory once: rows of one block table, heads of a GQA group,
// and rows of different requests whose tables begin with the same blocks. They part where their
// tables do. They are divided only if threads would otherwise be idle (attention_schedule.h).
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
  // The rows, so that those of one table, and of tables that begin with the same blocks, follow
  // each other (plan/prefix_order.h), and the number of leading blocks that the table of order[i]
  // has in common with that of order[i - 1]: all of them if it is the same; 0 for i = 0.
  absl::Span<const int32_t> order;   // [rows]
  absl::Span<const int32_t> common;  // [rows]
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
