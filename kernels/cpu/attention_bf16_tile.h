// Attention of a tile of queries over chunks of 16 positions, in bf16 dot products: scores, weights
// of the online softmax, values. Only attention_bf16.cc includes it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/backend.h"
#include "kernels/cpu/attention_bf16_lanes.h"

namespace coppice::kernels::cpu {

static_assert(kBlockSize == 16);  // positions of a chunk: one vector of f32
inline constexpr int kPairs = kBlockSize / 2;
inline constexpr int kTileQueries =
    8;  // queries per tile of scores: as many chains of dot products
// Bf16Queries per tile of values: with 64 dimensions as many sums as registers hold.
inline constexpr int kValueQueries = 4;
inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Bf16Queries and what they have seen so far. Scores are exponents of two.
template <int kDim>
struct Bf16Queries {
  const uint32_t (*pairs)[kDim / 2];  // pairs of bf16
  float (*sum)[kDim];                 // sums of weights times values
  float* max;      // largest score of each query. Whole tiles of max and total can be read.
  float* total;    // sum of the weights of each query
  uint16_t* seen;  // the positions of the chunk that each query sees, a bit each; at least one

  Bf16Queries From(int64_t query) const {
    return {pairs + query, sum + query, max + query, total + query, seen + query};
  }
  // What queries see does not depend on their KV head.
  Bf16Queries OfHead(int64_t head, int64_t queries_of_head) const {
    Bf16Queries queries = From(head * queries_of_head);
    queries.seen = seen;
    return queries;
  }
};

// A chunk as products take it: pairs of bf16 in words, of dimensions or of positions.
struct Bf16Chunk {
  uint32_t* keys = nullptr;    // [dim / 2][kBlockSize]
  uint32_t* values = nullptr;  // [kPairs][dim]
  float* k_scales = nullptr;   // [kBlockSize], if K and V are codes
  float* v_scales = nullptr;
};

// Turns scores into weights relative to the largest score so far, in pairs of bf16, and corrections
// into what the sums are to be multiplied with, because they are relative to the old maximum. The
// weight of a value that is codes is rounded together with its scale.
template <bool kScaled, int kQueries, int kDim>
COPPICE_BF16_DOT inline void ScoresToWeights(__m512 (&scores)[kTileQueries],
                                             const Bf16Queries<kDim>& queries,
                                             const Bf16Chunk& chunk,
                                             uint32_t (&weights)[kQueries][kPairs],
                                             float (&corrections)[kTileQueries]) {
  const auto all = static_cast<__mmask8>((1u << kQueries) - 1);
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q) {
    const auto seen = static_cast<__mmask16>(queries.seen[q]);
    if constexpr (kScaled) scores[q] = _mm512_mul_ps(scores[q], _mm512_loadu_ps(chunk.k_scales));
    scores[q] = _mm512_mask_blend_ps(seen, _mm512_set1_ps(kMinusInfinity), scores[q]);
  }
  const __m256 old = _mm256_loadu_ps(queries.max);
  const __m256 max = _mm256_max_ps(old, JoinLanes<kQueries>(scores, Larger()));
  alignas(32) float highest[kTileQueries];
  _mm256_store_ps(highest, max);
  _mm256_mask_storeu_ps(queries.max, all, max);
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q) {
    scores[q] = PowerOfTwo(_mm512_sub_ps(scores[q], _mm512_set1_ps(highest[q])));
    __m512 weight = scores[q];
    if constexpr (kScaled) {  // the scale of a position that the query does not see may be NaN
      weight = _mm512_maskz_mul_ps(static_cast<__mmask16>(queries.seen[q]), weight,
                                   _mm512_loadu_ps(chunk.v_scales));
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(weights[q]),
                        (__m256i)_mm512_cvtneps_pbh(weight));
  }
  const __m512 moved = PowerOfTwo(_mm512_castps256_ps512(_mm256_sub_ps(old, max)));
  const __m256 correction = _mm256_mask_blend_ps(_mm256_cmp_ps_mask(old, max, _CMP_EQ_OQ),
                                                 _mm512_castps512_ps256(moved), _mm256_set1_ps(1));
  _mm256_storeu_ps(corrections, correction);
  const __m256 total = _mm256_add_ps(_mm256_mul_ps(_mm256_loadu_ps(queries.total), correction),
                                     JoinLanes<kQueries>(scores, Sum()));
  _mm256_mask_storeu_ps(queries.total, all, total);
}

// For each chunk: sum = sum * correction + weights times values, two positions at a time. The sums
// of kQueries queries, from `first` on, stay in registers from chunk to chunk.
template <int kQueries, int kChunks, int kTile, int kDim>
COPPICE_BF16_DOT inline void AddValues(float (*sums)[kDim],
                                       const uint32_t (*weights)[kTile][kPairs],
                                       const float (*corrections)[kTileQueries], int first,
                                       const Bf16Chunk* chunks) {
  for (int j = 0; j < kDim; j += 64) {
    __m512 sum[kQueries][4];
#pragma GCC unroll 4
    for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) sum[q][i] = _mm512_loadu_ps(sums[first + q] + j + 16 * i);
    }
#pragma GCC unroll 2
    for (int c = 0; c < kChunks; ++c) {
#pragma GCC unroll 4
      for (int q = 0; q < kQueries; ++q) {
        const __m512 correction = _mm512_set1_ps(corrections[c][first + q]);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) sum[q][i] = _mm512_mul_ps(sum[q][i], correction);
      }
#pragma GCC unroll 8
      for (int t = 0; t < kPairs; ++t) {
        __m512i value[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i)
          value[i] = _mm512_loadu_si512(chunks[c].values + t * kDim + j + 16 * i);
#pragma GCC unroll 4
        for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 4
          for (int i = 0; i < 4; ++i)
            sum[q][i] = Dot(sum[q][i], weights[c][first + q][t], value[i]);
        }
      }
    }
#pragma GCC unroll 4
    for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) _mm512_storeu_ps(sums[first + q] + j + 16 * i, sum[q][i]);
    }
  }
}

// The chunks of a tile.
enum class Chunks {
  kOne,
  kTwoInOrder,  // of one KV head, one after the other
  kOfTwoHeads,  // the same chunk of two KV heads; the second one's queries follow the first one's
};

// kQueries queries of each KV head. Every score is one chain of dot products in the order of the
// dimensions; the chains of two chunks hide each other's latency. queries_of_head: for kOfTwoHeads.
template <bool kScaled, Chunks kWhich, int kQueries, int kDim>
COPPICE_BF16_DOT __attribute__((noinline)) void AttendTile(const Bf16Queries<kDim>& queries,
                                                           int64_t queries_of_head,
                                                           const Bf16Chunk* chunks) {
  constexpr int kChunks = kWhich == Chunks::kOne ? 1 : 2;
  constexpr bool kHeads = kWhich == Chunks::kOfTwoHeads;
  const Bf16Queries<kDim> of[2] = {queries, queries.OfHead(kHeads ? 1 : 0, queries_of_head)};
  __m512 scores[kChunks][kTileQueries];
  const uint32_t* pairs[kChunks];
#pragma GCC unroll 2
  for (int c = 0; c < kChunks; ++c) {
    pairs[c] = of[c].pairs[0];
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) scores[c][q] = _mm512_setzero_ps();
  }
  for (int j = 0; j < kDim / 2; ++j) {
    __m512i key[kChunks];
#pragma GCC unroll 2
    for (int c = 0; c < kChunks; ++c) key[c] = _mm512_loadu_si512(chunks[c].keys + j * kBlockSize);
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 2
      for (int c = 0; c < kChunks; ++c)
        scores[c][q] = Dot(scores[c][q], pairs[c][q * (kDim / 2) + j], key[c]);
    }
  }
  uint32_t weights[kChunks][kQueries][kPairs];
  float corrections[kChunks][kTileQueries];
#pragma GCC unroll 2
  for (int c = 0; c < kChunks; ++c)
    ScoresToWeights<kScaled, kQueries>(scores[c], of[c], chunks[c], weights[c], corrections[c]);
  constexpr int kFirst = std::min(kQueries, kValueQueries), kSecond = kQueries - kFirst;
  constexpr int kInOrder = kHeads ? 1 : kChunks;
#pragma GCC unroll 2
  for (int c = 0; c < kChunks; c += kInOrder) {
    AddValues<kFirst, kInOrder>(of[c].sum, weights + c, corrections + c, 0, chunks + c);
    if constexpr (kSecond > 0)
      AddValues<kSecond, kInOrder>(of[c].sum, weights + c, corrections + c, kFirst, chunks + c);
  }
}

// Any number of queries of each KV head.
template <bool kScaled, Chunks kWhich, int kDim, int kQueries = kTileQueries>
void AttendTiles(Bf16Queries<kDim> queries, int64_t count, int64_t queries_of_head,
                 const Bf16Chunk* chunks) {
  if constexpr (kQueries == kTileQueries) {
    for (; count >= kTileQueries; count -= kTileQueries, queries = queries.From(kTileQueries))
      AttendTile<kScaled, kWhich, kTileQueries>(queries, queries_of_head, chunks);
  } else if (count == kQueries) {
    return AttendTile<kScaled, kWhich, kQueries>(queries, queries_of_head, chunks);
  }
  if constexpr (kQueries > 1)
    AttendTiles<kScaled, kWhich, kDim, kQueries - 1>(queries, count, queries_of_head, chunks);
}

}  // namespace coppice::kernels::cpu
