#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/targets.h"
#include "kernels/element.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/attention_chunk-inl.h"

#ifndef COPPICE_KERNELS_CPU_ATTENTION_UNIT_
#define COPPICE_KERNELS_CPU_ATTENTION_UNIT_
namespace coppice::kernels::cpu {

// What one thread does at a time: rows [begin, end) of one table, all heads of one GQA group.
struct AttentionUnit {
  int64_t begin = 0;
  int64_t end = 0;
  int kv_head = 0;
};

inline int32_t ContextLength(const AttentionContext& context, int64_t row) {
  return context.prefix_len[row] + context.chain_begin[row + 1] - context.chain_begin[row];
}

}  // namespace coppice::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace coppice::kernels::cpu {
namespace HWY_NAMESPACE {

// The working memory of a unit: queries and their states, and K and V of one chunk as f32.
class UnitRunner {
 public:
  UnitRunner(const AttentionArgs& args, const AttentionUnit& unit, std::vector<float>* memory)
      : args_(args),
        context_(*args.context),
        unit_(unit),
        shape_(args.pool->shape),
        group_(args.q_heads / shape_.kv_heads),
        dim_((shape_.head_dim + 7) / 8 * 8) {
    const int64_t queries = (unit.end - unit.begin) * group_;
    memory->resize((2 * queries + 2 * kBlockSize) * dim_);
    k_ = memory->data() + 2 * queries * dim_;
    // States, and what pads a head, begin at zero. A copied chunk writes the rest of K and V.
    std::fill(memory->begin(),
              dim_ == shape_.head_dim ? memory->begin() + 2 * queries * dim_ : memory->end(), 0.0f);
    v_ = k_ + kBlockSize * dim_;
    states_.resize(queries);
    const float scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim));
    for (int64_t i = 0; i < queries; ++i) {
      float* query = memory->data() + 2 * i * dim_;
      const float* source = QueryOf(i);
      for (int j = 0; j < shape_.head_dim; ++j) query[j] = source[j] * scale;
      states_[i].query = query;
      states_[i].sum = query + dim_;
    }
  }

  void Run() {
    int32_t longest = 0;
    for (int64_t row = unit_.begin; row < unit_.end; ++row)
      longest = std::max(longest, ContextLength(context_, row));
    for (int32_t first = 0; first < longest; first += kBlockSize) {
      if (shape_.dtype == DType::kF32) {
        RunChunk<float>(first);
      } else {
        RunChunk<uint16_t>(first);
      }
    }
    for (int64_t i = 0; i < static_cast<int64_t>(states_.size()); ++i) {
      float* out = args_.out + (unit_.begin + i / group_) * args_.q_heads * shape_.head_dim +
                   HeadOf(i) * shape_.head_dim;
      for (int j = 0; j < shape_.head_dim; ++j) out[j] = states_[i].sum[j] / states_[i].total;
    }
  }

 private:
  int HeadOf(int64_t query) const {
    return unit_.kv_head * group_ + static_cast<int>(query % group_);
  }
  const float* QueryOf(int64_t query) const {
    const int64_t width = int64_t{args_.q_heads + 2 * shape_.kv_heads} * shape_.head_dim;
    return args_.qkv + (unit_.begin + query / group_) * width + HeadOf(query) * shape_.head_dim;
  }

  // Number of positions of the row's context in the chunk that begins at `first`.
  int PositionsOf(int64_t row, int32_t first) const {
    return std::clamp(ContextLength(context_, row) - first, 0, kBlockSize);
  }
  bool InPrefix(int64_t row, int32_t first) const {
    return first + PositionsOf(row, first) <= context_.prefix_len[row];
  }

  int32_t SlotOf(int64_t row, int32_t position) const {
    const int32_t prefix = context_.prefix_len[row];
    if (position >= prefix) return context_.chain[context_.chain_begin[row] + position - prefix];
    return BlockOf(row, position) * kBlockSize + position % kBlockSize;
  }
  int32_t BlockOf(int64_t row, int32_t position) const {
    return context_.table[context_.table_begin[context_.row_table[row]] + position / kBlockSize];
  }

  // Rows whose chunk is a prefix block share it. Other rows have theirs slot by slot.
  template <class T>
  void RunChunk(int32_t first) {
    int most = 0;
    int64_t sharing = 0;
    int64_t any = unit_.begin;
    for (int64_t row = unit_.begin; row < unit_.end; ++row) {
      if (PositionsOf(row, first) == 0 || !InPrefix(row, first)) continue;
      most = std::max(most, PositionsOf(row, first));
      any = row;
      ++sharing;
    }
    if (sharing > 0) {
      const auto block = Chunk<T>::At(reinterpret_cast<const T*>(args_.pool->HeadBlock(
                                          args_.layer, false, BlockOf(any, first), unit_.kv_head)),
                                      reinterpret_cast<const T*>(args_.pool->HeadBlock(
                                          args_.layer, true, BlockOf(any, first), unit_.kv_head)),
                                      shape_.head_dim, most);
      if (WorthCopying<T>(sharing * group_)) {
        AttendPrefixRows(Copied(block), first);
      } else {
        AttendPrefixRows(block, first);
      }
    }
    for (int64_t row = unit_.begin; row < unit_.end; ++row) {
      Chunk<T> chunk;
      chunk.positions = PositionsOf(row, first);
      if (chunk.positions == 0 || InPrefix(row, first)) continue;
      for (int t = 0; t < chunk.positions; ++t) {
        const int32_t slot = SlotOf(row, first + t);
        chunk.k[t] =
            reinterpret_cast<const T*>(args_.pool->Row(args_.layer, false, slot, unit_.kv_head));
        chunk.v[t] =
            reinterpret_cast<const T*>(args_.pool->Row(args_.layer, true, slot, unit_.kv_head));
      }
      if (WorthCopying<T>(group_)) {
        AttendRow(Copied(chunk), row);
      } else {
        AttendRow(chunk, row);
      }
    }
  }

  // A bf16 chunk that several queries read is widened once; heads that need padding are copied.
  template <class T>
  bool WorthCopying(int64_t queries) const {
    return dim_ != shape_.head_dim || (sizeof(T) == 2 && queries >= kWorthWidening);
  }
  template <class T>
  Chunk<float> Copied(const Chunk<T>& chunk) {
    for (int t = 0; t < chunk.positions; ++t) CopyPosition(chunk.k[t], chunk.v[t], t);
    return Chunk<float>::At(k_, v_, dim_, chunk.positions);
  }

  template <class T>
  void AttendPrefixRows(Chunk<T> chunk, int32_t first) {
    for (int64_t row = unit_.begin; row < unit_.end; ++row) {
      chunk.positions = PositionsOf(row, first);
      if (chunk.positions > 0 && InPrefix(row, first)) AttendRow(chunk, row);
    }
  }

  template <class T>
  void AttendRow(const Chunk<T>& chunk, int64_t row) {
    for (int g = 0; g < group_; ++g)
      AttendChunk(chunk, dim_, &states_[(row - unit_.begin) * group_ + g]);
  }

  // Copies K and V of one position to place t of the f32 chunk. The padding up to dim_ stays zero.
  template <class T>
  void CopyPosition(const T* k, const T* v, int t) {
    float* k_out = k_ + t * dim_;
    float* v_out = v_ + t * dim_;
    int j = 0;
    for (; j + kLanesA <= shape_.head_dim; j += kLanesA) {
      hn::StoreU(LoadFloats(k + j), DA(), k_out + j);
      hn::StoreU(LoadFloats(v + j), DA(), v_out + j);
    }
    for (; j < shape_.head_dim; ++j) k_out[j] = ToFloat(k[j]), v_out[j] = ToFloat(v[j]);
  }
  static float ToFloat(float value) { return value; }
  static float ToFloat(uint16_t bits) { return Bf16ToFloat(bits); }

  static constexpr int64_t kWorthWidening = 3;  // widen a bf16 block that so many queries read

  const AttentionArgs& args_;
  const AttentionContext& context_;
  const AttentionUnit& unit_;
  const KvPoolShape& shape_;
  const int group_;     // query heads of one KV head
  const int64_t dim_;   // head_dim rounded up to 8
  float* k_ = nullptr;  // [kBlockSize, dim_]
  float* v_ = nullptr;  // [kBlockSize, dim_]
  std::vector<QueryState> states_;
};

void AttendUnit(const AttentionArgs& args, const AttentionUnit& unit, std::vector<float>* memory) {
  UnitRunner(args, unit, memory).Run();
}

}  // namespace HWY_NAMESPACE
}  // namespace coppice::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::kernels::cpu {

HWY_EXPORT(AttendUnit);

namespace {

constexpr int64_t kMaxQueriesPerUnit =
    32;  // their states fit the first-level cache beside a chunk of K and V

void CheckContext(const AttentionArgs& args, int64_t rows) {
  const AttentionContext& context = *args.context;
  const int64_t slots = args.pool->shape.blocks * kBlockSize;
  COPPICE_CHECK(args.q_heads > 0 && args.q_heads % args.pool->shape.kv_heads == 0);
  COPPICE_CHECK(static_cast<int64_t>(context.prefix_len.size()) == rows);
  COPPICE_CHECK(static_cast<int64_t>(context.chain_begin.size()) == rows + 1);
  for (int64_t row = 0; row < rows; ++row) {
    COPPICE_CHECK_MSG(ContextLength(context, row) > 0, absl::StrCat("row ", row, " sees nothing"));
    if (context.prefix_len[row] == 0) continue;
    const int32_t table = context.row_table[row];
    const int32_t blocks = context.table_begin[table + 1] - context.table_begin[table];
    COPPICE_CHECK_MSG(
        context.prefix_len[row] <= blocks * kBlockSize,
        absl::StrCat("row ", row, ": prefix ", context.prefix_len[row], " of ", blocks, " blocks"));
  }
  for (const int32_t slot : context.chain) COPPICE_CHECK(slot >= 0 && slot < slots);
  for (const int32_t block : context.table)
    COPPICE_CHECK(block >= 0 && block < args.pool->shape.blocks);
}

std::vector<AttentionUnit> CutIntoUnits(const AttentionArgs& args, int64_t rows) {
  const int kv_heads = args.pool->shape.kv_heads;
  const int64_t most = std::max<int64_t>(1, kMaxQueriesPerUnit / (args.q_heads / kv_heads));
  std::vector<AttentionUnit> units;
  for (int64_t begin = 0, end = 0; begin < rows; begin = end) {
    while (end < rows && end - begin < most &&
           args.context->row_table[end] == args.context->row_table[begin])
      ++end;
    for (int head = 0; head < kv_heads; ++head) units.push_back({begin, end, head});
  }
  return units;
}

double EstimateMicroseconds(const AttentionArgs& args, int64_t rows) {
  double positions = 0;
  for (int64_t row = 0; row < rows; ++row) positions += ContextLength(*args.context, row);
  return positions * args.q_heads * args.pool->shape.head_dim * 4 / 20e3;  // 20 GFLOP/s
}

constexpr double kWorthSharingUs = 15.0;

}  // namespace

void Attention(const AttentionArgs& args, ThreadTeam* team) {
  const int64_t rows = static_cast<int64_t>(args.context->row_table.size());
  CheckContext(args, rows);
  const std::vector<AttentionUnit> units = CutIntoUnits(args, rows);
  const bool share = team->count() > 1 && EstimateMicroseconds(args, rows) >= kWorthSharingUs;
  const int64_t count = static_cast<int64_t>(units.size());
  const int64_t chunks = share ? std::min<int64_t>(count, ThreadTeam::kMaxChunks) : 1;
  team->Run(static_cast<int>(chunks), [&](int chunk) {
    std::vector<float> memory;
    for (int64_t i = count * chunk / chunks; i < count * (chunk + 1) / chunks; ++i) {
      HWY_DYNAMIC_DISPATCH(AttendUnit)(args, units[i], &memory);
    }
  });
}

}  // namespace coppice::kernels::cpu
#endif  // HWY_ONCE
