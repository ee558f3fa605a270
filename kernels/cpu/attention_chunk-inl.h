// Attention of queries over one chunk of at most 16 positions: scores, softmax update, values. The
// bits of a query do not depend on the others of its tile. Compiled once per target.
#if defined(COPPICE_KERNELS_CPU_ATTENTION_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef COPPICE_KERNELS_CPU_ATTENTION_CHUNK_INL_H_
#undef COPPICE_KERNELS_CPU_ATTENTION_CHUNK_INL_H_
#else
#define COPPICE_KERNELS_CPU_ATTENTION_CHUNK_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "kernels/backend.h"
#include "kernels/cpu/attention_lanes-inl.h"
#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/tanh-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int kVectorsOfChunk = kBlockSize / kLanesW;
inline constexpr int kUnrollA = kLanesW > 1 ? 16 : 1;
// Queries that read a chunk together: their scores, and half of their values, fit the registers.
inline constexpr int kTileQueries = kLanesW == 16 ? 8 : kLanesW == 8 ? 4 : 1;
inline constexpr int kValueQueries = (kTileQueries + 1) / 2;

// K and V of at most 16 positions, which are `stride` elements apart; the first dim (a multiple of
// 8) are used. keys: the same K as [dim][16] f32, if several queries read it; its values for absent
// positions do not matter.
template <class T>
struct Chunk {
  const T* k = nullptr;
  const T* v = nullptr;
  int64_t stride = 0;
  int positions = 0;  // 1..16
  const float* keys = nullptr;
  int hidden = 0;     // the first positions, which the query does not see; fewer than positions
  float softcap = 0;  // AttentionRule
  // [16] what k and v are multiplied with; nullptr: nothing. Those of absent positions do not matter.
  const float* k_scales = nullptr;
  const float* v_scales = nullptr;
};

// One query of the online softmax. query and sum hold dim floats.
struct QueryState {
  const float* query = nullptr;  // scaled
  float* sum = nullptr;          // sum of exp(score - max) * v so far
  float max = -std::numeric_limits<float>::infinity();
  float total = 0.0f;  // sum of exp(score - max) so far
};

// out[i] = sum of the lanes of acc[i]: ((0 + 2) + (1 + 3)) + ((4 + 6) + (5 + 7)).
HWY_INLINE void SumsOfLanes8(const hn::Vec<DA> (&acc)[8], float* HWY_RESTRICT out) {
  const DA d;
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 8; ++i) hn::StoreU(acc[i], d, out + i);
#else
  const hn::Repartition<double, DA> d64;
  const auto pair = [d](hn::Vec<DA> a, hn::Vec<DA> b) HWY_ATTR {
    return hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  };
  const auto quad = [d, d64](hn::Vec<DA> a, hn::Vec<DA> b) HWY_ATTR {
    const auto a64 = hn::BitCast(d64, a), b64 = hn::BitCast(d64, b);
    return hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, a64, b64)),
                   hn::BitCast(d, hn::InterleaveUpper(d64, a64, b64)));
  };
  const auto low = quad(pair(acc[0], acc[1]), pair(acc[2], acc[3]));
  const auto high = quad(pair(acc[4], acc[5]), pair(acc[6], acc[7]));
  hn::StoreU(hn::Add(hn::ConcatLowerLower(d, high, low), hn::ConcatUpperUpper(d, high, low)), d,
             out);
#endif
}

// One query, keys as stored. scores[i] of positions first + i, i < 8; those past the end repeat the
// last one. A score is eight chains of multiply-adds, over the dimensions j = lane, lane + 8, ...
template <class T>
HWY_INLINE void Scores8(const Chunk<T>& chunk, int first, const float* query, int64_t dim,
                        float* scores) {
  const DA d;
  const T* k[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i)
    k[i] = chunk.k + std::min(first + i, chunk.positions - 1) * chunk.stride;
  hn::Vec<DA> acc[8] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d),
                        hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  for (int64_t j = 0; j < dim; j += kLanesA) {
    const auto q = hn::LoadU(d, query + j);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) acc[i] = hn::MulAdd(q, LoadFloats(d, k[i] + j), acc[i]);
  }
  SumsOfLanes8(acc, scores);
}

// The scores of several queries with one vector of positions for each, in registers.
template <int kQueries>
struct ScoreVectors {
  VW of[kQueries][kVectorsOfChunk];

  HWY_INLINE void Clear() {
#pragma GCC unroll kUnrollA
    for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll kUnrollA
      for (int i = 0; i < kVectorsOfChunk; ++i) of[q][i] = hn::Zero(DW());
    }
  }
  // Adds dimension j.
  HWY_INLINE void AddDimension(const float* keys, int64_t j, QueryState* const* states) {
    const DW d;
    VW key[kVectorsOfChunk];
#pragma GCC unroll kUnrollA
    for (int i = 0; i < kVectorsOfChunk; ++i)
      key[i] = hn::LoadU(d, keys + j * kBlockSize + i * kLanesW);
#pragma GCC unroll kUnrollA
    for (int q = 0; q < kQueries; ++q) {
      const VW value = hn::Set(d, states[q]->query[j]);
#pragma GCC unroll kUnrollA
      for (int i = 0; i < kVectorsOfChunk; ++i) of[q][i] = hn::MulAdd(value, key[i], of[q][i]);
    }
  }
  HWY_INLINE void Add(const ScoreVectors& other) {
#pragma GCC unroll kUnrollA
    for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll kUnrollA
      for (int i = 0; i < kVectorsOfChunk; ++i) of[q][i] = hn::Add(of[q][i], other.of[q][i]);
    }
  }
  // The sum of two chains, dimensions lane, lane + 8, ... and lane + 2, lane + 10, ... Where the
  // registers hold both they go side by side, so that multiply-adds do not wait for each other.
  HWY_INLINE void TwoChains(const float* keys, int64_t dim, int lane, QueryState* const* states) {
    ScoreVectors second;
    Clear();
    second.Clear();
    if constexpr (kLanesW == 16) {
      for (int64_t j = lane; j < dim; j += 8) {
        AddDimension(keys, j, states);
        second.AddDimension(keys, j + 2, states);
      }
    } else {
      for (int64_t j = lane; j < dim; j += 8) AddDimension(keys, j, states);
      for (int64_t j = lane + 2; j < dim; j += 8) second.AddDimension(keys, j, states);
    }
    Add(second);
  }
};

// scores[q][t] = query q times key t, with the sums of Scores8 in the same order.
template <int kQueries>
HWY_INLINE void ScoresOfTile(const float* keys, int64_t dim, QueryState* const* states,
                             float (*scores)[kBlockSize]) {
  ScoreVectors<kQueries> total, half, odd;
#pragma GCC unroll 2
  for (int first = 0; first < 8; first += 4) {
    half.TwoChains(keys, dim, first, states);
    odd.TwoChains(keys, dim, first + 1, states);
    half.Add(odd);
    if (first == 0) {
      total = half;
    } else {
      total.Add(half);
    }
  }
#pragma GCC unroll kUnrollA
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll kUnrollA
    for (int i = 0; i < kVectorsOfChunk; ++i)
      hn::StoreU(total.of[q][i], DW(), scores[q] + i * kLanesW);
  }
}

// score = softcap * tanh(score / softcap).
HWY_INLINE void CapScores(float softcap, float* HWY_RESTRICT scores) {
  const DW d;
  const auto cap = hn::Set(d, softcap);
  for (int t = 0; t < kBlockSize; t += kLanesW)
    hn::StoreU(hn::Mul(Tanh(d, hn::Div(hn::LoadU(d, scores + t), cap)), cap), d, scores + t);
}

// The scales of codes: of k before the softmax, of v after it.
HWY_INLINE void ScalePositions(const float* scales, float* HWY_RESTRICT values) {
  const DW d;
  for (int t = 0; t < kBlockSize; t += kLanesW)
    hn::StoreU(hn::Mul(hn::LoadU(d, values + t), hn::LoadU(d, scales + t)), d, values + t);
}

// Turns scores into weights, exp(score - largest so far). Returns what the sums so far are to be
// multiplied with, because they are relative to the old maximum.
HWY_INLINE float ScoresToWeights(int hidden, int positions, float* HWY_RESTRICT scores,
                                 QueryState* state) {
  const DA d;
  const DW dw;
  // Positions that are absent or hidden score -infinity, so their weight is 0.
  for (int t = 0; t < hidden; ++t) scores[t] = -std::numeric_limits<float>::infinity();
  for (int t = positions; t < kBlockSize; ++t) scores[t] = -std::numeric_limits<float>::infinity();
  auto highest = hn::LoadU(d, scores);
#pragma GCC unroll 2
  for (int t = kLanesA; t < kBlockSize; t += kLanesA)
    highest = hn::Max(highest, hn::LoadU(d, scores + t));
  const float max = std::max(state->max, hn::GetLane(hn::MaxOfLanes(d, highest)));
#pragma GCC unroll 2
  for (int t = 0; t < kBlockSize; t += kLanesW)
    hn::StoreU(ExpOfNegative(dw, hn::Sub(hn::LoadU(dw, scores + t), hn::Set(dw, max))), dw,
               scores + t);
  auto sum = hn::LoadU(d, scores);
#pragma GCC unroll 2
  for (int t = kLanesA; t < kBlockSize; t += kLanesA) sum = hn::Add(sum, hn::LoadU(d, scores + t));
  // exp(0) is exactly 1.
  const float correction =
      max == state->max ? 1.0f : hn::GetLane(ExpOfNegative(d, hn::Set(d, state->max - max)));
  state->total = state->total * correction + hn::GetLane(hn::SumOfLanes(d, sum));
  state->max = max;
  return correction;
}

#if HWY_TARGET != HWY_SCALAR
// Lane i of the result is the lanes of values[i] joined in the order of SumOfLanes:
// ((0, 4), (2, 6)), ((1, 5), (3, 7)).
template <class Join>
HWY_INLINE hn::Vec<DA> JoinLanes8(const hn::Vec<DA> (&values)[8], Join join) {
  const DA d;
  const hn::Repartition<double, DA> d64;
  const auto halves = [d, join](hn::Vec<DA> a, hn::Vec<DA> b) HWY_ATTR {
    return join(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a));
  };
  const auto quarters = [d, d64, join](hn::Vec<DA> a, hn::Vec<DA> b) HWY_ATTR {
    const auto a64 = hn::BitCast(d64, a), b64 = hn::BitCast(d64, b);
    return join(hn::BitCast(d, hn::InterleaveLower(d64, a64, b64)),
                hn::BitCast(d, hn::InterleaveUpper(d64, a64, b64)));
  };
  const auto low = quarters(halves(values[0], values[2]), halves(values[1], values[3]));
  const auto high = quarters(halves(values[4], values[6]), halves(values[5], values[7]));
  return join(hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low));
}

struct AddOp {
  HWY_INLINE hn::Vec<DA> operator()(hn::Vec<DA> a, hn::Vec<DA> b) const { return hn::Add(a, b); }
};
struct MaxOp {
  HWY_INLINE hn::Vec<DA> operator()(hn::Vec<DA> a, hn::Vec<DA> b) const { return hn::Max(a, b); }
};
#endif

// The same for the queries of a tile, which see all positions. Their maxima, sums and corrections
// are lanes of one vector.
template <int kQueries>
HWY_INLINE void TileScoresToWeights(float (*HWY_RESTRICT scores)[kBlockSize],
                                    QueryState* const* states, float* HWY_RESTRICT corrections) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kQueries > 4) {  // half of the lanes would be idle for fewer
    const DA d;
    const DW dw;
    HWY_ALIGN float before[8] = {}, max[8], total[8] = {};
    hn::Vec<DA> joined[8];
    for (int q = 0; q < kQueries; ++q) before[q] = states[q]->max, total[q] = states[q]->total;
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) {
      const float* const of = scores[q < kQueries ? q : 0];
      joined[q] = hn::Max(hn::LoadU(d, of), hn::LoadU(d, of + 8));
    }
    const auto old = hn::Load(d, before);
    const auto highest = hn::Max(old, JoinLanes8(joined, MaxOp()));
    hn::Store(highest, d, max);
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 2
      for (int t = 0; t < kBlockSize; t += kLanesW) {
        const auto below = hn::Sub(hn::LoadU(dw, scores[q] + t), hn::Set(dw, max[q]));
        hn::StoreU(ExpOfNegative(dw, below), dw, scores[q] + t);
      }
    }
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) {
      const float* const of = scores[q < kQueries ? q : 0];
      joined[q] = hn::Add(hn::LoadU(d, of), hn::LoadU(d, of + 8));
    }
    // exp(0) is exactly 1.
    const auto correction = hn::IfThenElse(hn::Eq(highest, old), hn::Set(d, 1.0f),
                                           ExpOfNegative(d, hn::Sub(old, highest)));
    HWY_ALIGN float corrected[8];
    hn::Store(correction, d, corrected);
    const auto sums = JoinLanes8(joined, AddOp());
    hn::Store(hn::Add(hn::Mul(hn::Load(d, total), correction), sums), d, total);
    for (int q = 0; q < kQueries; ++q) {
      states[q]->max = max[q];
      states[q]->total = total[q];
      corrections[q] = corrected[q];
    }
    return;
  }
#endif
  for (int q = 0; q < kQueries; ++q)
    corrections[q] = ScoresToWeights(/*hidden=*/0, kBlockSize, scores[q], states[q]);
}

// sum = sum * correction + sum over positions of weight[t] v[t], in order of position, for kQueries
// queries and kWidth vectors of dimensions.
template <int kQueries, int kWidth, class D, class T>
HWY_INLINE void AddValues(D d, const Chunk<T>& chunk, const float (*weights)[kBlockSize],
                          const float* corrections, int64_t j, QueryState* const* states) {
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
  hn::Vec<D> acc[kQueries][kWidth];
#pragma GCC unroll kUnrollA
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll kUnrollA
    for (int i = 0; i < kWidth; ++i) {
      acc[q][i] =
          hn::Mul(hn::LoadU(d, states[q]->sum + j + i * kLanes), hn::Set(d, corrections[q]));
    }
  }
  for (int t = chunk.hidden; t < chunk.positions; ++t) {
    hn::Vec<D> value[kWidth];
#pragma GCC unroll kUnrollA
    for (int i = 0; i < kWidth; ++i)
      value[i] = LoadFloats(d, chunk.v + t * chunk.stride + j + i * kLanes);
#pragma GCC unroll kUnrollA
    for (int q = 0; q < kQueries; ++q) {
      const auto weight = hn::Set(d, weights[q][t]);
#pragma GCC unroll kUnrollA
      for (int i = 0; i < kWidth; ++i) acc[q][i] = hn::MulAdd(weight, value[i], acc[q][i]);
    }
  }
#pragma GCC unroll kUnrollA
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll kUnrollA
    for (int i = 0; i < kWidth; ++i) hn::StoreU(acc[q][i], d, states[q]->sum + j + i * kLanes);
  }
}

template <int kQueries, class T>
HWY_INLINE void AddAllValues(const Chunk<T>& chunk, int64_t dim, const float (*weights)[kBlockSize],
                             const float* corrections, QueryState* const* states) {
  int64_t j = 0;
  for (; j + 4 * kLanesW <= dim; j += 4 * kLanesW)
    AddValues<kQueries, 4>(DW(), chunk, weights, corrections, j, states);
  for (; j + kLanesA <= dim; j += kLanesA)
    AddValues<kQueries, 1>(DA(), chunk, weights, corrections, j, states);
}

// One query.
template <class T>
HWY_NOINLINE void AttendOne(const Chunk<T>& chunk, int64_t dim, QueryState* state) {
  float scores[1][kBlockSize] = {};
  Scores8(chunk, 0, state->query, dim, scores[0]);
  if (chunk.positions > 8) Scores8(chunk, 8, state->query, dim, scores[0] + 8);
  if (chunk.k_scales != nullptr) ScalePositions(chunk.k_scales, scores[0]);
  if (chunk.softcap > 0) CapScores(chunk.softcap, scores[0]);
  const float correction = ScoresToWeights(chunk.hidden, chunk.positions, scores[0], state);
  if (chunk.v_scales != nullptr) ScalePositions(chunk.v_scales, scores[0]);
  AddAllValues<1>(chunk, dim, scores, &correction, &state);
}

// kQueries queries, at most kTileQueries, over all positions of a chunk that has `keys`.
template <int kQueries, class T>
HWY_NOINLINE void AttendTile(const Chunk<T>& chunk, int64_t dim, QueryState* const* states) {
  float scores[kQueries][kBlockSize];
  float corrections[kQueries];
  ScoresOfTile<kQueries>(chunk.keys, dim, states, scores);
  if (chunk.k_scales != nullptr) {
    for (int q = 0; q < kQueries; ++q) ScalePositions(chunk.k_scales, scores[q]);
  }
  if (chunk.softcap > 0) {
    for (int q = 0; q < kQueries; ++q) CapScores(chunk.softcap, scores[q]);
  }
  TileScoresToWeights<kQueries>(scores, states, corrections);
  if (chunk.v_scales != nullptr) {
    for (int q = 0; q < kQueries; ++q) ScalePositions(chunk.v_scales, scores[q]);
  }
  constexpr int kFirst = std::min(kQueries, kValueQueries), kSecond = kQueries - kFirst;
  AddAllValues<kFirst>(chunk, dim, scores, corrections, states);
  if constexpr (kSecond > 0)
    AddAllValues<kSecond>(chunk, dim, scores + kFirst, corrections + kFirst, states + kFirst);
}

// Any number of queries over a chunk that has `keys`.
template <class T, int kQueries = kTileQueries>
void AttendTiles(const Chunk<T>& chunk, int64_t dim, QueryState* const* states, int64_t count) {
  if constexpr (kQueries == kTileQueries) {
    for (; count >= kTileQueries; count -= kTileQueries, states += kTileQueries)
      AttendTile<kTileQueries>(chunk, dim, states);
  } else if (count == kQueries) {
    return AttendTile<kQueries>(chunk, dim, states);
  }
  if constexpr (kQueries > 1) AttendTiles<T, kQueries - 1>(chunk, dim, states, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace coppice::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
