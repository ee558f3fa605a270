// One row tile of attention (work_list.h) apart from how it is computed: where its rows and tokens
// lie, and how sums become output or partial results, which the last block to finish merges. Every
// operation is rounded as it is written (device.h), so that tiles of any size have the same bits.
// For .cu files.
#pragma once

#include <cstdint>

#include "kernels/cuda/ops/kernel_types.h"

namespace coppice::kernels::cuda {

constexpr float kLowest = -3.0e38f;  // finite: differences of maxima are never NaN
constexpr float kLog2E = 1.44269504f;

// Where tokens lie and who sees them, and what blocks share when they split a row tile: of
// DeviceStep and DeviceWork, which kernels read only once.
struct Tokens {
  const int32_t* table;
  const int32_t* chain;
  const int32_t* chain_position;
  const int32_t* position;  // of the step's rows
  const int32_t* rows;      // of items that list them
  const uint64_t* masks;
  int32_t group;  // q heads of a KV head
};
struct Merging {
  float* partials;
  uint32_t* counters;
};
DEV_FUNCTION Tokens TokensOf(const DeviceStep& step, const DeviceWork& work,
                             const AttentionArgs& args, const DevicePool& pool) {
  return {step.table, work.chain, work.chain_position,         step.position,
          work.rows,  work.masks, args.q_heads / pool.kv_heads};
}

// Where an item begins for a rule: KV tiles before the windows of all of its rows are left out.
DEV_HOST_FUNCTION int32_t BeginOf(const AttentionItem& item, const AttentionRule& rule) {
  if (rule.window == 0) return item.kv_begin;
  const int32_t seen = item.first_position + 1 - rule.window;  // the first position of a window
  const int32_t tile = (seen < item.prefix ? seen : item.prefix) / kKvTile * kKvTile;
  return tile > item.kv_begin ? tile : item.kv_begin;
}

// The scale of scores, capped ones if there is a cap, for exponents of 2.
DEV_FUNCTION float ScoreScale(const AttentionRule& rule) {
  return (rule.softcap == 0.0f ? rule.scale : rule.softcap) * kLog2E;
}

// What one lane holds of its warp's rows g and g + 8, g = lane / 4: as Mma and MmaAsync do, in
// element 2 half + e of eight columns column 2 (lane % 4) + e of row g + 8 half.
template <int kEights>
struct RowState {
  float sum[kEights][4] = {};  // sums of V, by dims
  float max[2] = {kLowest, kLowest};
  float total[2] = {0.0f, 0.0f};  // sums over the lane's own tokens
};

// T: of activations and pool. kRows: packed rows of the tile class.
template <class T, int kRows>
struct RowTile {
  const Tokens& tokens;
  const AttentionArgs& args;
  const Merging& merging;
  const DevicePool& pool;
  const AttentionItem& item;

  DEV_FUNCTION int Group() const { return tokens.group; }
  DEV_FUNCTION int PackedRows() const { return item.rows * Group(); }
  // Whether a KV tile may have tokens of one request that rows of another pass over. They must not
  // reach these rows, and a weight of zero times a value that is not finite would be NaN: the V of
  // such a token is to be zero, and its K NaN, so that the rows that see it become NaN.
  DEV_FUNCTION bool MixesRequests(int tile) const {
    return item.listed >= 0 && tile >= item.mask_tile;
  }
  // The row of the step that a packed row belongs to.
  DEV_FUNCTION int32_t RowOf(int packed) const {
    const int row = packed / Group();
    return item.listed < 0 ? item.first_row + row : tokens.rows[item.listed + row];
  }
  // Which q head of which row, as an index into [rows, q_heads].
  DEV_FUNCTION int64_t RowHead(int packed) const {
    return int64_t{RowOf(packed)} * args.q_heads + item.kv_head * Group() + packed % Group();
  }
  // The query of a packed row, [head_dim].
  DEV_FUNCTION const T* QueryOf(int packed) const {
    const int64_t head = RowHead(packed) + int64_t{2} * pool.kv_heads * RowOf(packed);
    return static_cast<const T*>(args.qkv) + head * pool.head_dim;
  }
  DEV_FUNCTION int32_t SlotOf(int32_t token) const {
    const bool chained = token >= item.prefix;
    const int32_t place = *(chained ? tokens.chain + (item.chain_begin + token - item.prefix)
                                    : tokens.table + (item.table_begin + token / kBlockSize));
    return chained ? place : place * kBlockSize + token % kBlockSize;
  }

  DEV_FUNCTION int32_t PositionOf(int32_t token) const {
    if (token < item.prefix) return token;
    return tokens.chain_position[item.chain_begin + token - item.prefix];
  }

  // With a cap: scores become tanh(score * scale / cap).
  template <int kEights>
  DEV_FUNCTION void Cap(float (&score)[kEights][4]) const {
    if (args.rule.softcap == 0.0f) return;
    const float scale = args.rule.scale / args.rule.softcap;
    DEV_UNROLL
    for (int n = 0; n < kEights; ++n) {
      for (int e = 0; e < 4; ++e) score[n][e] = tanhf(dev::MulRn(score[n][e], scale));
    }
  }

  // The bits of a packed row for the tokens of a KV tile behind item.mask_tile.
  DEV_FUNCTION uint64_t MaskOf(int packed, int tile) const {
    if (packed >= PackedRows()) return 0;
    return tokens
        .masks[item.mask_begin + packed / Group() * item.mask_words + tile - item.mask_tile];
  }

  // Scores of tokens that a row does not see become -inf. Of the warp's 16 rows from `packed` on,
  // and tokens from first_token of the KV tile on.
  template <int kEights>
  DEV_FUNCTION void Mask(int packed, int tile, int first_token, float (&score)[kEights][4]) const {
    const int lane = dev::UnknownThread() % dev::kWarpSize;
    for (int half = 0; half < 2; ++half) {
      const uint64_t word =
          MaskOf(packed + lane / 4 + half * 8, tile) >> (first_token + lane % 4 * 2);
      DEV_UNROLL
      for (int n = 0; n < kEights; ++n) {
        if (!(word >> (n * 8) & 1)) score[n][half * 2] = -INFINITY;
        if (!(word >> (n * 8 + 1) & 1)) score[n][half * 2 + 1] = -INFINITY;
      }
    }
  }

  // Scores of tokens before the window of a row become -inf. Of the same rows and tokens of a KV
  // tile that begins at `first`.
  template <int kEights>
  DEV_FUNCTION void MaskWindow(int packed, int32_t first, int first_token,
                               float (&score)[kEights][4]) const {
    if (args.rule.window == 0) return;
    const int lane = dev::UnknownThread() % dev::kWarpSize;
    // No token of the tile has an earlier position: those of chains lie behind what all rows see.
    const int32_t earliest = min(first, item.mask_tile * kKvTile);
    DEV_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = packed + lane / 4 + half * 8;
      if (row >= PackedRows()) continue;
      const int32_t hidden = tokens.position[RowOf(row)] - args.rule.window;
      if (hidden < earliest) continue;
      const int32_t token = first + first_token + lane % 4 * 2;
      DEV_UNROLL
      for (int n = 0; n < kEights; ++n) {
        for (int e = 0; e < 2; ++e) {
          const int32_t at = token + n * 8 + e;
          if (at < item.kv_end && PositionOf(at) <= hidden) score[n][half * 2 + e] = -INFINITY;
        }
      }
    }
  }

  // Whether `finite` holds for each of the eight lanes of a token. Every lane of the warp calls it.
  DEV_FUNCTION static bool HoldsForToken(bool finite) {
    const int lane = static_cast<int>(threadIdx.x) % dev::kWarpSize;
    const uint32_t votes = __ballot_sync(dev::kFullWarp, finite);
    return (votes >> (lane / 8 * 8) & 0xff) == 0xff;
  }
  // Of eight values, 16 bytes.
  DEV_FUNCTION static bool Finite(const T* values) {
    const dev::Pack<T, 8> pack = dev::LoadPack<8>(values);
    float sum = 0.0f;  // zero times what is not finite is NaN
    DEV_UNROLL
    for (int i = 0; i < 8; ++i) sum = dev::FusedMultiplyAdd(dev::ToFloat(pack.value[i]), 0.0f, sum);
    return sum == 0.0f;
  }
  DEV_FUNCTION static void Fill(T* values, float with) {
    dev::Pack<T, 8> pack;
    DEV_UNROLL
    for (int i = 0; i < 8; ++i) pack.value[i] = dev::FromFloat<T>(with);
    dev::StorePack(values, pack);
  }

  // Scores become weights relative to the new maximum.
  template <int kEights, int kSums>
  DEV_FUNCTION void Weigh(float scale, float (&score)[kEights][4], RowState<kSums>* state) const {
    for (int half = 0; half < 2; ++half) {
      float max = state->max[half];
      DEV_UNROLL
      for (int n = 0; n < kEights; ++n) {
        max = fmaxf(max, dev::MulRn(fmaxf(score[n][half * 2], score[n][half * 2 + 1]), scale));
      }
      max = fmaxf(max, __shfl_xor_sync(dev::kFullWarp, max, 1));
      max = fmaxf(max, __shfl_xor_sync(dev::kFullWarp, max, 2));
      const float correction = dev::Exp2(state->max[half] - max);
      state->max[half] = max;
      float total = 0.0f;
      DEV_UNROLL
      for (int n = 0; n < kEights; ++n) {
        for (int e = half * 2; e < half * 2 + 2; ++e) {
          score[n][e] = dev::Exp2(dev::FusedMultiplyAdd(score[n][e], scale, -max));
          total = dev::AddRn(total, score[n][e]);
        }
      }
      state->total[half] = dev::FusedMultiplyAdd(state->total[half], correction, total);
      DEV_UNROLL
      for (int j = 0; j < kSums; ++j) {
        for (int e = half * 2; e < half * 2 + 2; ++e)
          state->sum[j][e] = dev::MulRn(state->sum[j][e], correction);
      }
    }
  }

  // Totals of lanes become totals of rows.
  template <int kSums>
  DEV_FUNCTION void SumTotals(RowState<kSums>* state) const {
    for (int half = 0; half < 2; ++half) {
      float total = state->total[half];
      total = dev::AddRn(total, __shfl_xor_sync(dev::kFullWarp, total, 1));
      total = dev::AddRn(total, __shfl_xor_sync(dev::kFullWarp, total, 2));
      state->total[half] = total;
    }
  }

  // Writes the warp's 16 rows from `packed` on, dims from first_dim on, to the output or partial
  // result. What a row needs is found once for all of its dims.
  template <int kSums>
  DEV_FUNCTION void EmitState(int packed, int first_dim, const RowState<kSums>& state) const {
    const int lane = dev::UnknownThread() % dev::kWarpSize;
    first_dim += lane % 4 * 2;
    DEV_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = packed + lane / 4 + half * 8;
      if (row >= PackedRows()) continue;
      if (item.splits == 1) {
        const float scale = ScaleOf(state.total[half]);
        T* const out = OutOf(row) + first_dim;
        DEV_UNROLL
        for (int j = 0; j < kSums; ++j) {
          if (first_dim + j * 8 >= pool.head_dim) continue;
          StoreScaled(out + j * 8, state.sum[j][half * 2], state.sum[j][half * 2 + 1], scale);
        }
      } else {
        float* const partial = PartialOf(row) + first_dim;
        DEV_UNROLL
        for (int j = 0; j < kSums; ++j) {
          if (first_dim + j * 8 >= pool.head_dim) continue;
          dev::StorePack(partial + j * 8,
                         dev::Pack<float, 2>{{state.sum[j][half * 2], state.sum[j][half * 2 + 1]}});
        }
        if (first_dim == 0) StoreStats(row, state.max[half], state.total[half]);
      }
    }
  }

  // Two neighbouring dims of one packed row, likewise.
  DEV_FUNCTION void Emit(int packed, int dim, float a, float b, float max, float total) const {
    if (packed >= PackedRows() || dim >= pool.head_dim) return;
    if (item.splits == 1) {
      Store(packed, dim, a, b, total);
      return;
    }
    dev::StorePack(PartialOf(packed) + dim, dev::Pack<float, 2>{{a, b}});
    if (dim == 0) StoreStats(packed, max, total);
  }
  DEV_FUNCTION float* Partial() const {
    return merging.partials + item.partial + item.split * PartialSize();
  }
  DEV_FUNCTION float* PartialOf(int packed) const { return Partial() + packed * pool.head_dim; }
  DEV_FUNCTION void StoreStats(int packed, float max, float total) const {
    dev::StorePack(Partial() + kRows * pool.head_dim + 2 * packed,
                   dev::Pack<float, 2>{{max, total}});
  }
  DEV_FUNCTION int PartialSize() const { return kRows * (pool.head_dim + 2); }
  DEV_FUNCTION T* OutOf(int packed) const {
    return static_cast<T*>(args.out) + RowHead(packed) * pool.head_dim;
  }
  DEV_FUNCTION float ScaleOf(float total) const {
    return total == 0.0f ? 0.0f : 1.0f / total;  // a row that sees nothing: 0
  }
  DEV_FUNCTION void StoreScaled(T* out, float a, float b, float scale) const {
    const dev::Pack<T, 2> pair = {
        {dev::FromFloat<T>(dev::MulRn(a, scale)), dev::FromFloat<T>(dev::MulRn(b, scale))}};
    dev::StorePack(out, pair);
  }
  DEV_FUNCTION void Store(int packed, int dim, float a, float b, float total) const {
    StoreScaled(OutOf(packed) + dim, a, b, ScaleOf(total));
  }

  // Joins `count` states of one row in order: sums and stats (max, total) at their strides. Of
  // kPairs pairs of dims, the first `dim`, each `step` dims behind the one before.
  template <int kPairs>
  DEV_FUNCTION void MergeAndEmit(int packed, int dim, int step, int count, const float* sums,
                                 int sum_stride, const float* stats, int stat_stride,
                                 bool last = false) const {
    float max = kLowest;
    for (int i = 0; i < count; ++i) max = fmaxf(max, stats[i * stat_stride]);
    float a[kPairs] = {}, b[kPairs] = {}, total = 0.0f;
    for (int i = 0; i < count; ++i) {
      const float weight = dev::Exp2(stats[i * stat_stride] - max);
      total = dev::FusedMultiplyAdd(stats[i * stat_stride + 1], weight, total);
      DEV_UNROLL
      for (int p = 0; p < kPairs; ++p) {
        const dev::Pack<float, 2> pair = dev::LoadPack<2>(sums + i * sum_stride + p * step);
        a[p] = dev::FusedMultiplyAdd(pair.value[0], weight, a[p]);
        b[p] = dev::FusedMultiplyAdd(pair.value[1], weight, b[p]);
      }
    }
    DEV_UNROLL
    for (int p = 0; p < kPairs; ++p) {
      if (last) {
        Store(packed, dim + p * step, a[p], b[p], total);
      } else {
        Emit(packed, dim + p * step, a[p], b[p], max, total);
      }
    }
  }

  // The block that finishes last merges the partial results in the order of the list. By this many
  // threads, which meet in sync(); *arrived is shared memory.
  template <class Sync>
  DEV_FUNCTION void MergeSplits(int thread, int threads, Sync sync, uint32_t* arrived) const {
    sync();
    if (thread == 0) *arrived = dev::AtomicAddAcqRel(merging.counters + item.merge, 1);
    sync();
    if (*arrived + 1 != static_cast<uint32_t>(item.splits)) return;
    const float* partials = merging.partials + item.partial;
    // A thread has several pairs of a row, whose loads are under way together. head_dim is a
    // multiple of 8.
    constexpr int kPairs = 4;
    const int step = pool.head_dim / kPairs, pairs = step / 2;
    for (int i = thread; i < PackedRows() * pairs; i += threads) {
      const int packed = i / pairs, dim = i % pairs * 2;
      MergeAndEmit<kPairs>(packed, dim, step, item.splits, partials + packed * pool.head_dim + dim,
                           PartialSize(), partials + kRows * pool.head_dim + 2 * packed,
                           PartialSize(), /*last=*/true);
    }
    if (thread == 0) merging.counters[item.merge] = 0;  // for the next layer
  }
};

}  // namespace coppice::kernels::cuda
