// The part of attention that one thread computes at a time, and where its context lies. Used by
// every kernel of attention.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cpu/attention.h"

namespace coppice::kernels::cpu {

// The rows at the places [begin, end) of AttentionContext::order, and the KV heads
// [kv_head, kv_head + kv_heads) with all their query heads, or one KV head with some of them.
struct AttentionUnit {
  int64_t begin = 0;
  int64_t end = 0;
  int kv_head = 0;
  int kv_heads = 1;
  int first_head = 0;  // of the queries
  int heads = 0;       // of the queries, for each KV head

  int64_t rows() const { return end - begin; }
  int64_t queries_of_head() const { return rows() * heads; }  // of one KV head
  int64_t queries() const { return queries_of_head() * kv_heads; }
};

inline int32_t ContextLength(const AttentionContext& context, int64_t row) {
  return context.prefix_len[row] + context.chain_begin[row + 1] - context.chain_begin[row];
}
// The first position that the row sees.
inline int32_t ContextBegin(const AttentionContext& context, int64_t row, int window) {
  return window == 0 ? 0 : std::max(0, ContextLength(context, row) - window);
}

// The contexts of a unit's rows, in chunks of kBlockSize positions. `first`: the first position of
// a chunk. A row, or a KV head, is named by its number in the unit.
class UnitContext {
 public:
  UnitContext(const AttentionArgs& args, const AttentionUnit& unit)
      : args_(args), unit_(unit), rows_(unit.rows()) {
    const AttentionContext& context = *args.context;
    int32_t all_begin = 0, all_end = INT32_MAX;
    for (int64_t i = 0; i < unit.rows(); ++i) {
      const int32_t row = context.order[unit.begin + i];
      Row& out = rows_[i];
      out = {.row = row,
             .begin = ContextBegin(context, row, args.rule.window),
             .prefix = context.prefix_len[row],
             .length = ContextLength(context, row),
             .table = context.table.data() + context.table_begin[context.row_table[row]],
             .chain = context.chain.data() + context.chain_begin[row]};
      begin_ = std::min(begin_, out.begin);
      longest_ = std::max(longest_, out.length);
      all_begin = std::max(all_begin, out.begin);
      all_end = std::min(all_end, out.prefix);
      if (i > 0) all_end = std::min(all_end, context.common[unit.begin + i] * kBlockSize);
    }
    all_begin_ = (all_begin + kBlockSize - 1) / kBlockSize * kBlockSize;
    all_end_ = all_end / kBlockSize * kBlockSize;
  }

  int32_t Longest() const { return longest_; }
  // The begin of the first chunk that a row sees.
  int32_t FirstChunk() const { return begin_ / kBlockSize * kBlockSize; }
  // Whether the chunk is one block, of which every row sees every position.
  bool SeenByAll(int32_t first) const { return first >= all_begin_ && first < all_end_; }

  // Number of positions of the row's context in the chunk, whether the row sees them or not; 0: it
  // sees nothing of the chunk.
  int PositionsOf(int64_t row, int32_t first) const {
    if (first + kBlockSize <= rows_[row].begin) return 0;
    return std::clamp(rows_[row].length - first, 0, kBlockSize);
  }
  // Number of the chunk's positions that lie before the row's window.
  int HiddenOf(int64_t row, int32_t first) const { return std::max(0, rows_[row].begin - first); }
  // Whether the row sees some of the chunk, and the chunk is a block of its table.
  bool SeesBlock(int64_t row, int32_t first) const {
    const int positions = PositionsOf(row, first);
    return positions > 0 && first + positions <= rows_[row].prefix;
  }
  // For two rows that see a block: whether they can read it together. Memory after the positions of
  // a row's context may hold anything, so requests only share what is full.
  bool Share(int64_t a, int64_t b, int32_t first) const {
    return rows_[a].table == rows_[b].table ||
           (BlockOf(a, first) == BlockOf(b, first) && rows_[a].length >= first + kBlockSize &&
            rows_[b].length >= first + kBlockSize);
  }

  // Queries of one KV head follow each other, and within it those of one row.
  const float* Query(int64_t query) const {
    const KvPoolShape& shape = args_.pool->shape;
    const int64_t width = int64_t{args_.q_heads + 2 * shape.kv_heads} * shape.head_dim;
    return args_.qkv + RowOf(query) * width + HeadOf(query) * shape.head_dim;
  }
  float* Out(int64_t query) const {
    return args_.out + (RowOf(query) * args_.q_heads + HeadOf(query)) * args_.pool->shape.head_dim;
  }

  // K (value false) or V of the prefix block that begins at `first`, [kBlockSize][head_dim].
  const uint8_t* Block(int head, int64_t row, int32_t first, bool value) const {
    return args_.pool->HeadBlock(args_.layer, value, BlockOf(row, first), unit_.kv_head + head);
  }
  // K or V of one position, [head_dim].
  const uint8_t* Vector(int head, int64_t row, int32_t position, bool value) const {
    return args_.pool->Row(args_.layer, value, SlotOf(row, position), unit_.kv_head + head);
  }
  // With codes: the scales of K or V of the prefix block that begins at `first`, [kBlockSize].
  const float* BlockScales(int head, int64_t row, int32_t first, bool value) const {
    return args_.pool->Scales(args_.layer, value, BlockOf(row, first), unit_.kv_head + head);
  }
  // With codes: the scale of K or V of one position.
  float ScaleOf(int head, int64_t row, int32_t position, bool value) const {
    return *args_.pool->Scale(args_.layer, value, SlotOf(row, position), unit_.kv_head + head);
  }

  // For a row and KV head that begin with the block at `first`: begins to read what comes after the
  // next KV head. A block may be anywhere in the pool, so the hardware does not prefetch its begin.
  // Always inlined: GCC 12 drops calls of a function that only prefetches.
  __attribute__((always_inline)) void FetchAhead(int head, int64_t row, int32_t first) const {
    const int ahead = unit_.kv_heads > 1 ? 2 : 1;
    constexpr size_t kLine = 64;
    const int next = head + ahead;
    first += next / unit_.kv_heads * kBlockSize;
    if (first >= rows_[row].prefix) return;
    for (const bool value : {false, true}) {
      const uint8_t* const data = Block(next % unit_.kv_heads, row, first, value);
      for (size_t i = 0; i < args_.pool->head_block_bytes(); i += kLine)
        __builtin_prefetch(data + i);
    }
  }

 private:
  struct Row {
    int64_t row = 0;     // of the pass
    int32_t begin = 0;   // the first position that it sees
    int32_t prefix = 0;  // positions of its context in the table; the others are in the chain
    int32_t length = 0;  // of its context
    const int32_t* table = nullptr;
    const int32_t* chain = nullptr;
  };

  int64_t RowOf(int64_t query) const {
    return rows_[query % unit_.queries_of_head() / unit_.heads].row;
  }
  int HeadOf(int64_t query) const {
    const int64_t kv_head = query / unit_.queries_of_head();
    return unit_.first_head + static_cast<int>(kv_head * unit_.heads + query % unit_.heads);
  }
  int32_t SlotOf(int64_t row, int32_t position) const {
    const int32_t prefix = rows_[row].prefix;
    if (position >= prefix) return rows_[row].chain[position - prefix];
    return BlockOf(row, position) * kBlockSize + position % kBlockSize;
  }
  int32_t BlockOf(int64_t row, int32_t position) const {
    return rows_[row].table[position / kBlockSize];
  }

  const AttentionArgs& args_;
  const AttentionUnit& unit_;
  std::vector<Row> rows_;
  int32_t begin_ = INT32_MAX, longest_ = 0;
  int32_t all_begin_ = 0, all_end_ = 0;  // positions of SeenByAll
};

}  // namespace coppice::kernels::cpu
