#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/attention_bf16.h"
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
      if (shape_.dtype == DType::kF32) {
        RunChunk<float>(first);
      } else if (shape_.dtype == DType::kBF16) {
        RunChunk<uint16_t>(first);
      } else {
        RunChunk<int8_t>(first);
      }
    }
    for (int64_t i = 0; i < static_cast<int64_t>(states_.size()); ++i) {
      float* out = context_.Out(i);
      for (int j = 0; j < shape_.head_dim; ++j) out[j] = states_[i].sum[j] / states_[i].total;
    }
  }

 private:
  // Rows whose chunk is a prefix block share it. Other rows gather their chunk slot by slot.
  template <class T>
  void RunChunk(int32_t first) {
    int most = 0;
    int64_t any = unit_.begin;
    whole_.clear(), partial_.clear();
    for (int64_t row = unit_.begin; row < unit_.end; ++row) {
      const int positions = context_.PositionsOf(row, first);
      if (positions == 0 || !context_.InPrefix(row, first)) continue;
      most = std::max(most, positions);
      any = row;
      const int hidden = context_.HiddenOf(row, first);
      for (int g = 0; g < group_; ++g) {
        QueryState* const state = &states_[(row - unit_.begin) * group_ + g];
        if (positions == kBlockSize && hidden == 0) {
          whole_.push_back(state);
        } else {
          partial_.push_back({state, hidden, positions});
        }
      }
    }
    if (most > 0) {
      const auto block = [&](bool value) {
        return reinterpret_cast<const T*>(context_.Block(any, first, value));
      };
      context_.Fetch(any, first + kBlockSize);
      if (args_.pool->scaled()) {
        k_scales_ = context_.BlockScales(any, first, false);
        v_scales_ = context_.BlockScales(any, first, true);
      }
      AttendRows(block(false), block(true), shape_.head_dim, most);
    }
    T* const k = reinterpret_cast<T*>(gathered_);
    T* const v = k + kBlockSize * shape_.head_dim;
    for (int64_t row = unit_.begin; row < unit_.end; ++row) {
      const int positions = context_.PositionsOf(row, first);
      if (positions == 0 || context_.InPrefix(row, first)) continue;
      for (int t = 0; t < positions; ++t) {
        for (const bool value : {false, true}) {
          std::memcpy((value ? v : k) + t * shape_.head_dim, context_.Vector(row, first + t, value),
                      args_.pool->row_bytes());
        }
      }
      if (args_.pool->scaled()) GatherScales(row, first, positions);
      whole_.clear(), partial_.clear();
      for (int g = 0; g < group_; ++g)
        partial_.push_back(
            {&states_[(row - unit_.begin) * group_ + g], context_.HiddenOf(row, first), positions});
      AttendRows(k, v, shape_.head_dim, positions);
    }
  }

  void GatherScales(int64_t row, int32_t first, int positions) {
    for (int t = 0; t < positions; ++t) {
      gathered_k_scales_[t] = context_.ScaleOf(row, first + t, false);
      gathered_v_scales_[t] = context_.ScaleOf(row, first + t, true);
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
  const int group_;            // query heads of the unit
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

constexpr int64_t kMaxQueriesPerUnit =
    32;  // their states fit the first-level cache beside a chunk of K and V
constexpr int64_t kManyUnitsEach = 4;  // units per thread; one more or less then matters little

void CheckContext(const AttentionArgs& args, int64_t rows) {
  const AttentionContext& context = *args.context;
  const int64_t slots = args.pool->shape.blocks * kBlockSize;
  COPPICE_CHECK(args.rule.scale > 0 && args.rule.window >= 0 && args.rule.softcap >= 0);
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
  const int group = args.q_heads / kv_heads;
  const int64_t most = std::max<int64_t>(1, kMaxQueriesPerUnit / group);
  std::vector<AttentionUnit> units;
  for (int64_t begin = 0, end = 0; begin < rows; begin = end) {
    while (end < rows && end - begin < most &&
           args.context->row_table[end] == args.context->row_table[begin])
      ++end;
    for (int head = 0; head < kv_heads; ++head)
      units.push_back({begin, end, head, head * group, group});
  }
  return units;
}

// Units that follow each other belong to one thread (ThreadTeam), so each thread gets every
// threads-th unit.
std::vector<AttentionUnit> Dealt(int threads, const std::vector<AttentionUnit>& units) {
  std::vector<AttentionUnit> dealt;
  for (int thread = 0; thread < threads; ++thread) {
    for (size_t i = thread; i < units.size(); i += threads) dealt.push_back(units[i]);
  }
  return dealt;
}

// With few units, such as three for two threads, some threads would wait for others. The units that
// are left over when all threads have as many are cut into parts, if that ends sooner. A part reads
// its K and V again.
void ShareTheRest(int threads, std::vector<AttentionUnit>* units) {
  const auto count = static_cast<int>(units->size());
  const int left_over = count % threads;
  if (left_over == 0 || count >= kManyUnitsEach * threads) return;
  const std::vector<AttentionUnit> rest(units->end() - left_over, units->end());
  units->resize(count - left_over);
  // Parts of each unit, so that all threads have as many.
  const int most = threads / std::gcd(threads, left_over);
  for (const AttentionUnit& unit : rest) {
    const int rows = static_cast<int>(unit.end - unit.begin);
    const bool by_rows = rows >= std::min(most, unit.heads);
    const int divided = by_rows ? rows : unit.heads;
    int parts = std::min(most, divided);
    if ((left_over * parts + threads - 1) / threads >= parts) parts = 1;
    for (int part = 0; part < parts; ++part) {
      const int begin = divided * part / parts, end = divided * (part + 1) / parts;
      AttentionUnit one = unit;
      if (by_rows) {
        one.begin = unit.begin + begin;
        one.end = unit.begin + end;
      } else {
        one.first_head = unit.first_head + begin;
        one.heads = end - begin;
      }
      units->push_back(one);
    }
  }
}

double EstimateMicroseconds(const AttentionArgs& args, int64_t rows) {
  double positions = 0;
  const double most = args.rule.window > 0 ? args.rule.window : std::numeric_limits<int32_t>::max();
  for (int64_t row = 0; row < rows; ++row)
    positions += std::min<double>(most, ContextLength(*args.context, row));
  return positions * args.q_heads * args.pool->shape.head_dim * 4 / 20e3;  // 20 GFLOP/s
}

constexpr double kWorthSharingUs = 15.0;

}  // namespace

void Attention(const AttentionArgs& args, ThreadTeam* team) {
  const int64_t rows = static_cast<int64_t>(args.context->row_table.size());
  CheckContext(args, rows);
  std::vector<AttentionUnit> units = CutIntoUnits(args, rows);
  const bool share = team->count() > 1 && EstimateMicroseconds(args, rows) >= kWorthSharingUs;
  if (share) {
    ShareTheRest(team->count(), &units);
    units = Dealt(team->count(), units);
  }
  const bool bf16_dot = AttendsWithBf16Dot(args.pool->shape, args.rule);
  const int64_t count = static_cast<int64_t>(units.size());
  const int64_t chunks = share ? std::min<int64_t>(count, int64_t{8} * team->count()) : 1;
  team->Run(static_cast<int>(chunks), [&](int chunk) {
    std::vector<float> memory;
    for (int64_t i = count * chunk / chunks; i < count * (chunk + 1) / chunks; ++i) {
      if (bf16_dot) {
        AttendUnitBf16(args, units[i], &memory);
      } else {
        HWY_DYNAMIC_DISPATCH(AttendUnit)(args, units[i], &memory);
      }
    }
  });
}

}  // namespace coppice::kernels::cpu
#endif  // HWY_ONCE
