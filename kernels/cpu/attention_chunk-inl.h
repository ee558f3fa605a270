// Attention of one query over one chunk of at most 16 positions: scores, softmax update, values.
// Compiled once per target.
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
#include "kernels/cpu/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Lanes are capped at 8, so that AVX2 and AVX-512 sum in the same order.
using DA = hn::CappedTag<float, 8>;
using VA = hn::Vec<DA>;
inline constexpr int kLanesA = static_cast<int>(hn::MaxLanes(DA()));

HWY_INLINE VA LoadFloats(const float* p) { return hn::LoadU(DA(), p); }
HWY_INLINE VA LoadFloats(const uint16_t* bf16) {
  const hn::Rebind<uint16_t, DA> narrow;
  const hn::RebindToUnsigned<DA> wide;
  return hn::BitCast(DA(), hn::ShiftLeft<16>(hn::PromoteTo(wide, hn::LoadU(narrow, bf16))));
}

// K and V of the positions of a chunk, wherever they are; the first dim elements (a multiple of 8)
// are used.
template <class T>
struct Chunk {
  const T* k[kBlockSize] = {};
  const T* v[kBlockSize] = {};
  int positions = 0;  // 1..16

  // Positions that are `stride` elements apart.
  static Chunk At(const T* k, const T* v, int64_t stride, int positions) {
    Chunk chunk;
    chunk.positions = positions;
    for (int t = 0; t < positions; ++t) {
      chunk.k[t] = k + t * stride;
      chunk.v[t] = v + t * stride;
    }
    return chunk;
  }
};

// One query of the online softmax. query and sum hold dim floats.
struct QueryState {
  const float* query = nullptr;  // scaled by 1/sqrt(head_dim)
  float* sum = nullptr;          // sum of exp(score - max) * v so far
  float max = -std::numeric_limits<float>::infinity();
  float total = 0.0f;  // sum of exp(score - max) so far
};

// out[i] = sum of the lanes of acc[i].
HWY_INLINE void SumsOfLanes8(const VA (&acc)[8], float* HWY_RESTRICT out) {
  const DA d;
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 8; ++i) hn::StoreU(acc[i], d, out + i);
#else
  const hn::Repartition<double, DA> d64;
  const auto pair = [d](VA a, VA b) HWY_ATTR {
    return hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  };
  const auto quad = [d, d64](VA a, VA b) HWY_ATTR {
    const auto a64 = hn::BitCast(d64, a), b64 = hn::BitCast(d64, b);
    return hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, a64, b64)),
                   hn::BitCast(d, hn::InterleaveUpper(d64, a64, b64)));
  };
  const VA low = quad(pair(acc[0], acc[1]), pair(acc[2], acc[3]));
  const VA high = quad(pair(acc[4], acc[5]), pair(acc[6], acc[7]));
  hn::StoreU(hn::Add(hn::ConcatLowerLower(d, high, low), hn::ConcatUpperUpper(d, high, low)), d,
             out);
#endif
}

// scores[i] of positions first + i, i < 8. Scores past the end repeat the last one.
template <class T>
HWY_INLINE void Scores8(const Chunk<T>& chunk, int first, const float* query, int64_t dim,
                        float* scores) {
  const DA d;
  const int last = std::max(chunk.positions - 1, 0);
  const T* k[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) k[i] = chunk.k[std::min(first + i, last)];
  VA acc[8] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d),
               hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  for (int64_t j = 0; j < dim; j += kLanesA) {
    const VA q = hn::LoadU(d, query + j);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) acc[i] = hn::MulAdd(q, LoadFloats(k[i] + j), acc[i]);
  }
  SumsOfLanes8(acc, scores);
}

// sum = sum * correction + sum over positions of weight[t] v[t], in order of position. Does kWidth
// vectors of dims at a time.
template <int kWidth, class T>
HWY_INLINE void AddValues(const Chunk<T>& chunk, const float* weights, float correction, int64_t j,
                          float* sum) {
  const DA d;
  VA acc[kWidth];
#pragma GCC unroll 8
  for (int i = 0; i < kWidth; ++i) {
    acc[i] = hn::Mul(hn::LoadU(d, sum + j + i * kLanesA), hn::Set(d, correction));
  }
  for (int t = 0; t < chunk.positions; ++t) {
    const VA weight = hn::Set(d, weights[t]);
    const T* v = chunk.v[t] + j;
#pragma GCC unroll 8
    for (int i = 0; i < kWidth; ++i)
      acc[i] = hn::MulAdd(weight, LoadFloats(v + i * kLanesA), acc[i]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kWidth; ++i) hn::StoreU(acc[i], d, sum + j + i * kLanesA);
}

template <class T>
HWY_NOINLINE void AttendChunk(const Chunk<T>& chunk, int64_t dim, QueryState* state) {
  const DA d;
  // Absent positions score -infinity, so their weight is 0.
  HWY_ALIGN float scores[kBlockSize] = {};
  Scores8(chunk, 0, state->query, dim, scores);
  if (chunk.positions > 8) Scores8(chunk, 8, state->query, dim, scores + 8);
  for (int t = chunk.positions; t < kBlockSize; ++t)
    scores[t] = -std::numeric_limits<float>::infinity();

  VA highest = hn::Load(d, scores);
#pragma GCC unroll 2
  for (int t = kLanesA; t < kBlockSize; t += kLanesA)
    highest = hn::Max(highest, hn::Load(d, scores + t));
  const float max = std::max(state->max, hn::GetLane(hn::MaxOfLanes(d, highest)));
  VA sum = hn::Zero(d);
#pragma GCC unroll 2
  for (int t = 0; t < kBlockSize; t += kLanesA) {
    const VA weights = ExpOfNegative(d, hn::Sub(hn::Load(d, scores + t), hn::Set(d, max)));
    hn::Store(weights, d, scores + t);
    sum = hn::Add(sum, weights);
  }
  // The sums so far are relative to the old maximum. exp(0) is exactly 1.
  const float correction =
      max == state->max ? 1.0f : hn::GetLane(ExpOfNegative(d, hn::Set(d, state->max - max)));
  state->total = state->total * correction + hn::GetLane(hn::SumOfLanes(d, sum));
  state->max = max;

  int64_t j = 0;
  for (; j + 8 * kLanesA <= dim; j += 8 * kLanesA)
    AddValues<8>(chunk, scores, correction, j, state->sum);
  for (; j < dim; j += kLanesA) AddValues<1>(chunk, scores, correction, j, state->sum);
}

}  // namespace HWY_NAMESPACE
}  // namespace coppice::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
