// The part of attention that one thread computes at a time, and where its context lies. Used by
// every kernel of attention.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/attention.h"

namespace coppice::kernels::cpu {

// Rows [begin, end) of one table, heads of one GQA group.
struct AttentionUnit {
  int64_t begin = 0;
  int64_t end = 0;
  int kv_head = 0;
  int first_head = 0;  // of the queries
  int heads = 0;

  int64_t queries() const { return (end - begin) * heads; }
  // Query i of the unit: its row of the pass, and its head.
  int64_t RowOf(int64_t query) const { return begin + query / heads; }
  int HeadOf(int64_t query) const { return first_head + static_cast<int>(query % heads); }
};

inline int32_t ContextLength(const AttentionContext& context, int64_t row) {
  return context.prefix_len[row] + context.chain_begin[row + 1] - context.chain_begin[row];
}

// The contexts of a unit's rows, in chunks of kBlockSize positions.
class UnitContext {
 public:
  UnitContext(const AttentionArgs& args, const AttentionUnit& unit)
      : args_(args), context_(*args.context), unit_(unit) {}

  int32_t Longest() const {
    int32_t longest = 0;
    for (int64_t row = unit_.begin; row < unit_.end; ++row)
      longest = std::max(longest, ContextLength(context_, row));
    return longest;
  }
  // The begin of the first chunk that a row sees.
  int32_t FirstChunk() const {
    int32_t begin = INT32_MAX;
    for (int64_t row = unit_.begin; row < unit_.end; ++row) begin = std::min(begin, BeginOf(row));
    return begin / kBlockSize * kBlockSize;
  }

  // Number of positions of the row's context in the chunk that begins at `first`, whether the row
  // sees them or not; 0: it sees nothing of the chunk.
  int PositionsOf(int64_t row, int32_t first) const {
    if (first + kBlockSize <= BeginOf(row)) return 0;
    return std::clamp(ContextLength(context_, row) - first, 0, kBlockSize);
  }
  // Number of the chunk's positions that lie before the row's window.
  int HiddenOf(int64_t row, int32_t first) const { return std::max(0, BeginOf(row) - first); }
  bool InPrefix(int64_t row, int32_t first) const {
    return first + PositionsOf(row, first) <= context_.prefix_len[row];
  }

  const float* Query(int64_t query) const {
    const KvPoolShape& shape = args_.pool->shape;
    const int64_t width = int64_t{args_.q_heads + 2 * shape.kv_heads} * shape.head_dim;
    return args_.qkv + unit_.RowOf(query) * width + unit_.HeadOf(query) * shape.head_dim;
  }
  float* Out(int64_t query) const {
    return args_.out +
           (unit_.RowOf(query) * args_.q_heads + unit_.HeadOf(query)) * args_.pool->shape.head_dim;
  }

  // K (value false) or V of the prefix block that begins at `first`, [kBlockSize][head_dim].
  const uint8_t* Block(int64_t row, int32_t first, bool value) const {
    return args_.pool->HeadBlock(args_.layer, value, BlockOf(row, first), unit_.kv_head);
  }
  // K or V of one position, [head_dim].
  const uint8_t* Vector(int64_t row, int32_t position, bool value) const {
    return args_.pool->Row(args_.layer, value, SlotOf(row, position), unit_.kv_head);
  }
  // With codes: the scales of K or V of the prefix block that begins at `first`, [kBlockSize].
  const float* BlockScales(int64_t row, int32_t first, bool value) const {
    return args_.pool->Scales(args_.layer, value, BlockOf(row, first), unit_.kv_head);
  }
  // With codes: the scale of K or V of one position.
  float ScaleOf(int64_t row, int32_t position, bool value) const {
    return *args_.pool->Scale(args_.layer, value, SlotOf(row, position), unit_.kv_head);
  }

  // Begins to read the prefix block at `first`. It may be anywhere in the pool, so the hardware
  // does not prefetch it.
  void Fetch(int64_t row, int32_t first) const {
    if (first >= context_.prefix_len[row]) return;
    constexpr size_t kLine = 64;
    for (const bool value : {false, true}) {
      const uint8_t* const data = Block(row, first, value);
      for (size_t i = 0; i < args_.pool->head_block_bytes(); i += kLine)
        __builtin_prefetch(data + i, 0, 2);
    }
  }

 private:
  // The first position that the row sees.
  int32_t BeginOf(int64_t row) const {
    if (args_.rule.window == 0) return 0;
    return std::max(0, ContextLength(context_, row) - args_.rule.window);
  }
  int32_t SlotOf(int64_t row, int32_t position) const {
    const int32_t prefix = context_.prefix_len[row];
    if (position >= prefix) return context_.chain[context_.chain_begin[row] + position - prefix];
    return BlockOf(row, position) * kBlockSize + position % kBlockSize;
  }
  int32_t BlockOf(int64_t row, int32_t position) const {
    return context_.table[context_.table_begin[context_.row_table[row]] + position / kBlockSize];
  }

  const AttentionArgs& args_;
  const AttentionContext& context_;
  const AttentionUnit& unit_;
};

}  // namespace coppice::kernels::cpu
