// The tokens with the largest noisy keys of one piece of a row (candidate_lists.h), for .cu files.
// Every token's noise is drawn, but its two logarithms are computed only where the key may be one
// of those wanted: bounds of the noise (gumbel_noise.h) give a threshold that enough keys reach,
// and leave out the tokens that cannot reach it. One block works on one piece.
#pragma once

#include <cstdint>

#include "kernels/cuda/ops/candidate_lists.h"
#include "kernels/cuda/ops/gumbel_noise.h"
#include "kernels/cuda/ops/list_select.h"

namespace coppice::kernels::cuda {

// Tokens of a thread: pair j of the thread is pair j * kSelectThreads + thread of the piece.
inline constexpr int kThreadTokens = kPieceTokens / kSelectThreads;
// Place in the piece of the thread's token number i.
DEV_FUNCTION uint32_t PieceIndex(int i) {
  return 2 * (i / 2 * kSelectThreads + threadIdx.x) + i % 2;
}

inline constexpr uint32_t kNoToken = 0x7fffffff;

// Key of a token with a finite logit, or +inf, and its noise. Never 0, which means no key: a
// product that overflows is still a key.
DEV_FUNCTION uint32_t NoisyKey(const ListTask& list, float logit, float noise) {
  const float x = dev::MulRn(logit, list.inverse_temperature);
  return max(KeyBits(dev::AddRn(x, noise)), 1u);
}

// Bit t: the token at place t of the block's piece has a bias.
DEV_FUNCTION uint32_t* BiasMarks() {
  DEV_SHARED(uint32_t, marks, kPieceTokens / 32);
  return marks;
}

// The tokens [first, first + kPieceTokens) of a row, as far as it has them.
struct RowPiece {
  const float* row;  // logits of the row
  int64_t columns;   // tokens of the row
  int64_t first;     // a multiple of kPieceTokens
  int64_t in_row;    // column of `first`: may be negative
  bool has_bias;     // of some token: BiasMarks is written

  DEV_FUNCTION float LogitAt(uint32_t index) const { return dev::LoadInput(row + in_row + index); }

  // The thread's logits, -inf for tokens that the row lacks.
  DEV_FUNCTION void Load(float (&logits)[kThreadTokens]) const {
    const float* const piece = row + in_row;
    if (in_row >= 0 && in_row + kPieceTokens <= columns &&
        reinterpret_cast<uintptr_t>(piece) % (2 * sizeof(float)) == 0) {
      DEV_UNROLL
      for (int i = 0; i < kThreadTokens; i += 2) {
        const dev::Pack<float, 2> pair = dev::LoadPack<2>(piece + PieceIndex(i));
        logits[i] = pair.value[0];
        logits[i + 1] = pair.value[1];
      }
      return;
    }
    const uint32_t lacking = in_row < 0 ? static_cast<uint32_t>(-in_row) : 0;
    const uint32_t end = static_cast<uint32_t>(min(columns - in_row, int64_t{kPieceTokens}));
    DEV_UNROLL
    for (int i = 0; i < kThreadTokens; ++i) {
      const uint32_t index = PieceIndex(i);
      logits[i] = index >= lacking && index < end ? LogitAt(index) : __uint_as_float(0xff800000u);
    }
  }

  // Gives the thread's tokens with a bias the logit -inf.
  DEV_FUNCTION void DropBiased(float (&logits)[kThreadTokens]) const {
    if (!has_bias) return;
    const uint32_t* const marks = BiasMarks();
    DEV_UNROLL
    for (int i = 0; i < kThreadTokens; ++i) {
      const uint32_t index = PieceIndex(i);
      if ((marks[index / 32] >> index % 32 & 1) != 0) logits[i] = __uint_as_float(0xff800000u);
    }
  }
};

// The thread's lowest token whose logit is NaN or +inf, or kNoToken.
DEV_FUNCTION uint32_t FirstBad(const float (&logits)[kThreadTokens], int64_t first) {
  bool finite = true;
  DEV_UNROLL
  for (int i = 0; i < kThreadTokens; ++i) {
    finite = finite && logits[i] < __uint_as_float(0x7f800000u);
  }
  uint32_t bad = kNoToken;
  if (finite) return bad;
  DEV_UNROLL
  for (int i = kThreadTokens - 1; i >= 0; --i) {
    if (!(logits[i] < __uint_as_float(0x7f800000u))) {
      bad = static_cast<uint32_t>(first) + PieceIndex(i);
    }
  }
  return bad;
}

// What at least `want` keys of the block reach, or -inf if that is not known. best: a bound of a
// key of the thread from above, which that key misses by at most kNoiseGap and roundings.
DEV_FUNCTION float ReachedBy(int want, float best, BlockReduce* block) {
  const uint32_t key = KeyBits(best);
  uint32_t bound = 0;
  if (want <= kSelectWarps) {
    bound = block->ReachedByWarps(want, key);
  } else if (want <= kSelectThreads) {
    bound = LargestWith(want, 32, [&](uint32_t t) { return block->Sum(key >= t ? 1 : 0); });
  }
  if (bound == 0) return __uint_as_float(0xff800000u);
  const float value = KeyValue(bound);
  // Sums of two floats, each off by at most 2^-24 of itself. NaN of an infinite bound.
  return value - fmaf(fabsf(value), 0x1p-21f, kNoiseGap);
}

// Makes bounds of the keys of logits [kThreadTokens], and returns the largest of those that say
// how small the key can be at least (IsNoiseNear).
DEV_FUNCTION float BoundKeys(const ListTask& list, int64_t first, float (&logits)[kThreadTokens]) {
  float best = __uint_as_float(0xff800000u);
  DEV_UNROLL
  for (int i = 0; i < kThreadTokens; i += 2) {
    const PhiloxWords words = TokenWords(list.seed, list.path_hash, list.slot,
                                         static_cast<uint32_t>(first) + PieceIndex(i));
    DEV_UNROLL
    for (int odd = 0; odd < 2; ++odd) {
      const uint32_t rest = ~words.x[2 * odd];
      float& bound = logits[i + odd];
      bound = dev::AddRn(dev::MulRn(bound, list.inverse_temperature), NoiseAbove(rest));
      if (IsNoiseNear(rest)) best = fmaxf(best, bound);
    }
  }
  return best;
}

inline constexpr int kMostKept = 1024;  // tokens of a piece whose keys are computed

// Writes the places of the thread's tokens `kept` (bit i: token i) to places [kMostKept], in any
// order, and returns how many there are in the block. If they are more than kMostKept, writes none.
DEV_FUNCTION int Gather(uint32_t kept, BlockReduce* block, uint32_t* places) {
  const uint32_t below = (1u << threadIdx.x % dev::kWarpSize) - 1;
  const uint32_t of_warp = __reduce_add_sync(dev::kFullWarp, static_cast<uint32_t>(__popc(kept)));
  int total = 0;
  int next = block->WarpsBefore(static_cast<int>(of_warp), &total);
  if (total > kMostKept) return total;
  // A token of every lane that has one, in turns: most warps have a few at most.
  uint32_t lanes = __ballot_sync(dev::kFullWarp, kept != 0);
  while (lanes != 0) {
    if (kept != 0) {
      places[next + __popc(lanes & below)] = PieceIndex(__ffs(static_cast<int>(kept)) - 1);
      kept &= kept - 1;
    }
    next += __popc(lanes);
    lanes = __ballot_sync(dev::kFullWarp, kept != 0);
  }
  return total;
}

// The key of the token at a place of the piece.
DEV_FUNCTION uint32_t KeyAt(const ListTask& list, const RowPiece& piece, uint32_t index) {
  const PhiloxWords words =
      TokenWords(list.seed, list.path_hash, list.slot, static_cast<uint32_t>(piece.first) + index);
  const bool odd = index % 2 != 0;
  return NoisyKey(list, piece.LogitAt(index),
                  GumbelOfWords(odd ? words.x[2] : words.x[0], odd ? words.x[3] : words.x[1]));
}

// Writes the list.want tokens with the largest keys to out [list.want], largest first, of equal
// keys the lower token first, and the lowest bad token of the piece to *bad_token. Returns false,
// for the whole block, and writes nothing, if bounds do not suffice: where only a few tokens have a
// finite logit, or list.want is large.
DEV_FUNCTION bool ListNoisyPiece(const ListTask& list, const RowPiece& piece, BlockReduce* block,
                                 ListEntry* out, int32_t* bad_token) {
  DEV_SHARED(uint32_t, bad_of_warp, kSelectWarps);
  DEV_SHARED(uint32_t, places, kMostKept);
  DEV_SHARED(uint32_t, keys, kMostKept);
  float bounds[kThreadTokens];
  piece.Load(bounds);
  uint32_t bad = FirstBad(bounds, piece.first);
  piece.DropBiased(bounds);
  const float best = BoundKeys(list, piece.first, bounds);
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % dev::kWarpSize, warp = thread / dev::kWarpSize;
  bad = __reduce_min_sync(dev::kFullWarp, bad);
  if (lane == 0) bad_of_warp[warp] = bad;
  const float reached = ReachedBy(list.want, best, block);
  if (!(reached > __uint_as_float(0xff800000u))) return false;

  uint32_t kept = 0;
  DEV_UNROLL
  for (int i = 0; i < kThreadTokens; ++i) kept |= bounds[i] >= reached ? 1u << i : 0u;
  const int total = Gather(kept, block, places);
  if (total > kMostKept) return false;
  if (warp == 0) {
    const uint32_t of_lane = lane < kSelectWarps ? bad_of_warp[lane] : kNoToken;
    bad = __reduce_min_sync(dev::kFullWarp, of_lane);
    if (lane == 0) *bad_token = static_cast<int32_t>(bad);
  }
  __syncthreads();
  for (int i = thread; i < total; i += kSelectThreads) keys[i] = KeyAt(list, piece, places[i]);
  __syncthreads();
  for (int i = thread; i < total; i += kSelectThreads) {
    const uint32_t key = keys[i], index = places[i];
    int rank = 0;
    for (int j = 0; j < total; ++j) {
      rank += keys[j] > key || (keys[j] == key && places[j] < index) ? 1 : 0;
    }
    if (rank < list.want) out[rank] = {key, static_cast<int32_t>(piece.first + index)};
  }
  return true;
}

}  // namespace coppice::kernels::cuda
