#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/attention_bf16.h"
#include "kernels/cpu/attention_schedule.h"
#include "kernels/cpu/attention_unit.h"
#include "kernels/cpu/targets.h"
#include "kernels/element.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/attention_chunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::kernels::cpu {
namespace HWY_NAMESPACE {

// The working memory of a unit: queries and their states, and of one chunk K, transposed, as f32,
// and V where it is not read as it is stored.
class UnitRunner {
 public:
  UnitRunner(const AttentionArgs& args, const AttentionUnit& unit, std::vector<float>* memory)
      : args_(args),
        context_(args, unit),
        unit_(unit),
        shape_(args.pool->shape),
        group_(unit.heads),
        dim_((shape_.head_dim + 7) / 8 * 8) {
    const int64_t queries = unit.queries();
    const size_t needed = (2 * queries + 5 * kBlockSize) * dim_;
    if (memory->size() < needed) memory->resize(needed);
    keys_ = memory->data() + 2 * queries * dim_;
    k_ = keys_ + kBlockSize * dim_;
    v_ = k_ + kBlockSize * dim_;
    gathered_ = v_ + kBlockSize * dim_;
    // The padding up to dim_ is zero.
    if (dim_ != shape_.head_dim) std::fill_n(keys_, 3 * kBlockSize * dim_, 0.0f);
    states_.resize(queries);
    for (int64_t i = 0; i < queries; ++i) {
      float* query = memory->data() + 2 * i * dim_;
      const float* source = context_.Query(i);
      for (int j = 0; j < shape_.head_dim; ++j) query[j] = source[j] * args.rule.scale;
      std::fill(query + shape_.head_dim, query + 2 * dim_, 0.0f);
      states_[i].query = query;
      states_[i].sum = query + dim_;
    }
  }

  void Run() {
    const int32_t longest = context_.Longest();
    for (int32_t first = context_.FirstChunk(); first < longest; first += kBlockSize) {
      // The KV heads of a block lie one behind the other, so they are read as fast as memory allows.
      for (head_ = 0; head_ < unit_.kv_heads; ++head_) {
        if (shape_.dtype == DType::kF32) {
          RunChunk<float>(first);
        } else if (shape_.dtype == DType::kBF16) {
          RunChunk<uint16_t>(first);
        } else {
          RunChunk<int8_t>(first);
        }
      }
    }
    for (int64_t i = 0; i < static_cast<int64_t>(states_.size()); ++i) {
      float* out = context_.Out(i);
      for (int j = 0; j < shape_.head_dim; ++j) out[j] = states_[i].sum[j] / states_[i].total;
    }
  }

 private:
  // Runs of rows whose chunk is the same block share it. Other rows gather their chunk slot by
  // slot.
  template <class T>
  void RunChunk(int32_t first) {
    if (context_.SeenByAll(first)) return RunBlock<T>(0, unit_.rows(), first);
    for (int64_t row = 0; row < unit_.rows();) {
      const int64_t begin = row++;
      if (context_.SeesBlock(begin, first)) {
        while (row < unit_.rows() && context_.SeesBlock(row, first) &&
               context_.Share(begin, row, first))
          ++row;
        RunBlock<T>(begin, row, first);
      } else if (context_.PositionsOf(begin, first) > 0) {
        RunOwn<T>(begin, first);
      }
    }
  }

  // The rows [begin, end), which share the block.
  template <class T>
  void RunBlock(int64_t begin, int64_t end, int32_t first) {
    int most = 0;
    whole_.clear(), partial_.clear();
    for (int64_t row = begin; row < end; ++row) {
      const int positions = context_.PositionsOf(row, first),
                hidden = context_.HiddenOf(row, first);
      most = std::max(most, positions);
      for (int g = 0; g < group_; ++g) {
        QueryState* const state = StateOf(row, g);
        if (positions == kBlockSize && hidden == 0) {
          whole_.push_back(state);
        } else {
          partial_.push_back({state, hidden, positions});
        }
      }
    }
    const auto block = [&](bool value) {
      return reinterpret_cast<const T*>(context_.Block(head_, begin, first, value));
    };
    context_.FetchAhead(head_, begin, first);
    if (args_.pool->scaled()) {
      k_scales_ = context_.BlockScales(head_, begin, first, false);
      v_scales_ = context_.BlockScales(head_, begin, first, true);
    }
    AttendRows(block(false), block(true), shape_.head_dim, most);
  }

  template <class T>
  void RunOwn(int64_t row, int32_t first) {
    T* const k = reinterpret_cast<T*>(gathered_);
    T* const v = k + kBlockSize * shape_.head_dim;
    const int positions = context_.PositionsOf(row, first);
    for (int t = 0; t < positions; ++t) {
      for (const bool value : {false, true}) {
        std::memcpy((value ? v : k) + t * shape_.head_dim,
                    context_.Vector(head_, row, first + t, value), args_.pool->row_bytes());
      }
    }
    if (args_.pool->scaled()) GatherScales(row, first, positions);
    whole_.clear(), partial_.clear();
    for (int g = 0; g < group_; ++g)
      partial_.push_back({StateOf(row, g), context_.HiddenOf(row, first), positions});
    AttendRows(k, v, shape_.head_dim, positions);
  }

  QueryState* StateOf(int64_t row, int query_head) {
    return &states_[head_ * unit_.queries_of_head() + row * group_ + query_head];
  }

  void GatherScales(int64_t row, int32_t first, int positions) {
    for (int t = 0; t < positions; ++t) {
      gathered_k_scales_[t] = context_.ScaleOf(head_, row, first + t, false);
      gathered_v_scales_[t] = context_.ScaleOf(head_, row, first + t, true);
    }
    k_scales_ = gathered_k_scales_;
    v_scales_ = gathered_v_scales_;
  }

  // The queries of whole_ and partial_ over a chunk, k and v [kBlockSize][head_dim].
  template <class T>
  void AttendRows(const T* k, const T* v, int64_t head_dim, int most) {
    const auto queries = static_cast<int64_t>(whole_.size() + partial_.size());
    const bool transpose = kTileQueries > 1 && whole_.size() >= kWorthTransposing;
    if (transpose) TransposeKeys(k, head_dim, head_dim, keys_);
    if (dim_ == head_dim && (sizeof(T) == 4 || transpose || queries < kWorthWidening))
      return AttendQueries(Chunk<T>{k, v, head_dim, most, keys_}, transpose);
    const bool keys_needed = !transpose || !partial_.empty();
    for (int t = 0; t < most; ++t) {
      if (keys_needed) Widen(k + t * head_dim, k_ + t * dim_);
      Widen(v + t * head_dim, v_ + t * dim_);
    }
    AttendQueries(Chunk<float>{k_, v_, dim_, most, keys_}, transpose);
  }

  template <class T>
  void AttendQueries(Chunk<T> chunk, bool transposed) {
    chunk.positions = kBlockSize;
    chunk.softcap = args_.rule.softcap;
    chunk.k_scales = k_scales_;
    chunk.v_scales = v_scales_;
    if (transposed) {
      AttendTiles(chunk, dim_, whole_.data(), static_cast<int64_t>(whole_.size()));
    } else {
      for (QueryState* state : whole_) AttendOne(chunk, dim_, state);
    }
    for (const PartialView& view : partial_) {
      chunk.hidden = view.hidden;
      chunk.positions = view.positions;
      AttendOne(chunk, dim_, view.state);
    }
  }

  // The padding up to dim_ stays zero.
  template <class T>
  void Widen(const T* values, float* out) {
    int j = 0;
    for (; j + kLanesW <= shape_.head_dim; j += kLanesW)
      hn::StoreU(LoadFloats(DW(), values + j), DW(), out + j);
    for (; j < shape_.head_dim; ++j) out[j] = WidenValue(values[j]);
  }

  // Widen a block of bf16 or codes whose keys are not transposed, if this many queries read it.
  static constexpr int64_t kWorthWidening = 3;
  static constexpr size_t kWorthTransposing = 3;

  const AttentionArgs& args_;
  const UnitContext context_;
  const AttentionUnit& unit_;
  const KvPoolShape& shape_;
  const int group_;            // query heads of a KV head of the unit
  int head_ = 0;               // the KV head in work
  const int64_t dim_;          // head_dim rounded up to 8
  float* keys_ = nullptr;      // [dim_, kBlockSize]
  float* k_ = nullptr;         // [kBlockSize, dim_]
  float* v_ = nullptr;         // [kBlockSize, dim_]
  float* gathered_ = nullptr;  // K, then V, as stored, of a chunk that is not one block
  // Of codes, [kBlockSize] of the chunk; else nullptr.
  const float* k_scales_ = nullptr;
  const float* v_scales_ = nullptr;
  float gathered_k_scales_[kBlockSize] = {}, gathered_v_scales_[kBlockSize] = {};
  std::vector<QueryState> states_;
  // A query that sees the positions [hidden, positions) of the chunk.
  struct PartialView {
    QueryState* state;
    int hidden;
    int positions;
  };
  std::vector<QueryState*> whole_;  // queries that see all positions of the chunk
  std::vector<PartialView> partial_;
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

void CheckContext(const AttentionArgs& args, int64_t rows) {
  const AttentionContext& context = *args.context;
  const int64_t slots = args.pool->shape.blocks * kBlockSize;
  COPPICE_CHECK(args.rule.scale > 0 && args.rule.window >= 0 && args.rule.softcap >= 0);
  COPPICE_CHECK(args.q_heads > 0 && args.q_heads % args.pool->shape.kv_heads == 0);
  COPPICE_CHECK(static_cast<int64_t>(context.prefix_len.size()) == rows);
  COPPICE_CHECK(static_cast<int64_t>(context.chain_begin.size()) == rows + 1);
  COPPICE_CHECK(static_cast<int64_t>(context.order.size()) == rows);
  COPPICE_CHECK(static_cast<int64_t>(context.common.size()) == rows);
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

double EstimateMicroseconds(const AttentionArgs& args, int64_t rows) {
  double positions = 0;
  const double most = args.rule.window > 0 ? args.rule.window : std::numeric_limits<int32_t>::max();
  for (int64_t row = 0; row < rows; ++row)
    positions += std::min<double>(most, ContextLength(*args.context, row));
  return positions * args.q_heads * args.pool->shape.head_dim * 4 / 20e3;  // 20 GFLOP/s
}

constexpr double kWorthSharingUs = 15.0;
constexpr int kMostParts = 8;  // of the units of a thread

}  // namespace

void Attention(const AttentionArgs& args, ThreadTeam* team) {
  const int64_t rows = static_cast<int64_t>(args.context->row_table.size());
  CheckContext(args, rows);
  const bool share = team->count() > 1 && EstimateMicroseconds(args, rows) >= kWorthSharingUs;
  const int threads = share ? team->count() : 1;
  const AttentionSchedule schedule = ScheduleAttention(args, threads);
  const bool bf16_dot = AttendsWithBf16Dot(args.pool->shape, args.rule);
  // A thread's units are in parts, which another thread can take over when it is done.
  const int64_t units_each = static_cast<int64_t>(schedule.units.size()) / threads;
  const int parts = share ? static_cast<int>(std::clamp<int64_t>(units_each, 1, kMostParts)) : 1;
  team->Run(threads * parts, [&](int chunk) {
    const int thread = chunk / parts, part = chunk % parts;
    const int64_t begin = schedule.begin[thread], count = schedule.begin[thread + 1] - begin;
    std::vector<float> memory;
    for (int64_t i = begin + count * part / parts; i < begin + count * (part + 1) / parts; ++i) {
      if (bf16_dot) {
        AttendUnitBf16(args, schedule.units[i], &memory);
      } else {
        HWY_DYNAMIC_DISPATCH(AttendUnit)(args, schedule.units[i], &memory);
      }
    }
  });
}

}  // namespace coppice::kernels::cpu
#endif  // HWY_ONCE
