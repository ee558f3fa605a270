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

  DEV_FUNCTION float LogitAt(uint32_t index) const { return __ldg(row + in_row + index); }

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
    bound = block->LargestOfWarps(want, key);
  } else if (want <= kSelectThreads) {
    bound = LargestWith(want, 32, [&](uint32_t t) { return block->Sum(key >= t ? 1 : 0); });
  }
  if (bound == 0) return __uint_as_float(0xff800000u);
  const float value = KeyValue(bound);
  // Sums of two floats, each off by at most 2^-24 of itself. NaN of an infinite bound.
  return value - fmaf(fabsf(value), 0x1p-21f, kNoiseGap);
}

inline constexpr int kMostKept = 1024;  // tokens of a piece whose keys are computed

// Writes the list.want tokens with the largest keys to out [list.want], largest first, of equal
// keys the lower token first, and the lowest bad token of the piece to *bad_token. Returns false,
// for the whole block, and writes no token, if bounds do not suffice: where only a few tokens have
// a finite logit, or list.want is large.
DEV_FUNCTION bool ListNoisyPiece(const ListTask& list, const RowPiece& piece, BlockReduce* block,
                                 ListEntry* out, int32_t* bad_token) {
  float bounds[kThreadTokens];  // logits at first
  piece.Load(bounds);
  const uint32_t bad = block->Min(FirstBad(bounds, piece.first));
  if (threadIdx.x == 0) *bad_token = static_cast<int32_t>(bad);
  piece.DropBiased(bounds);
  float best = __uint_as_float(0xff800000u);
  DEV_UNROLL
  for (int i = 0; i < kThreadTokens; i += 2) {
    const PhiloxWords words = TokenWords(list.seed, list.path_hash, list.slot,
                                         static_cast<uint32_t>(piece.first) + PieceIndex(i));
    DEV_UNROLL
    for (int odd = 0; odd < 2; ++odd) {
      const uint32_t rest = ~words.x[2 * odd];
      float& bound = bounds[i + odd];
      bound = dev::AddRn(dev::MulRn(bound, list.inverse_temperature), NoiseAbove(rest));
      if (IsNoiseNear(rest)) best = fmaxf(best, bound);
    }
  }
  const float reached = ReachedBy(list.want, best, block);
  if (!(reached > __uint_as_float(0xff800000u))) return false;

  DEV_SHARED(uint32_t, kept_index, kMostKept);
  DEV_SHARED(uint32_t, kept_key, kMostKept);
  uint32_t kept = 0;  // bit i: token i of the thread
  DEV_UNROLL
  for (int i = 0; i < kThreadTokens; ++i) kept |= bounds[i] >= reached ? 1u << i : 0u;
  int total = 0;
  int place = block->SumBefore(__popc(kept), &total);
  if (total > kMostKept) return false;
  for (; kept != 0; kept &= kept - 1) {
    kept_index[place++] = PieceIndex(__ffs(static_cast<int>(kept)) - 1);
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < total; i += kSelectThreads) {
    const uint32_t index = kept_index[i];
    const PhiloxWords words = TokenWords(list.seed, list.path_hash, list.slot,
                                         static_cast<uint32_t>(piece.first) + index);
    const bool odd = index % 2 != 0;
    kept_key[i] =
        NoisyKey(list, piece.LogitAt(index),
                 GumbelOfWords(odd ? words.x[2] : words.x[0], odd ? words.x[3] : words.x[1]));
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < total; i += kSelectThreads) {
    const uint32_t key = kept_key[i], index = kept_index[i];
    int rank = 0;
    for (int j = 0; j < total; ++j) {
      rank += kept_key[j] > key || (kept_key[j] == key && kept_index[j] < index) ? 1 : 0;
    }
    if (rank < list.want) out[rank] = {key, static_cast<int32_t>(piece.first + index)};
  }
  return true;
}

}  // namespace coppice::kernels::cuda
