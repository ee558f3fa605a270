#include "kernels/cpu/attention_bf16.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "kernels/cpu/kernel_target.h"

#if defined(__x86_64__)
#include "kernels/cpu/attention_bf16_lanes.h"

namespace coppice::kernels::cpu {
namespace {

static_assert(kBlockSize == 16);  // positions of a chunk: one vector of f32
constexpr int kPairs = kBlockSize / 2;
constexpr int kTileQueries = 8;  // queries per tile of scores: as many chains of dot products
// Queries per tile of values: with 64 dimensions as many sums as registers hold.
constexpr int kValueQueries = 4;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Queries and what they have seen so far. Scores are exponents of two.
template <int kDim>
struct Queries {
  const uint32_t (*pairs)[kDim / 2];  // pairs of bf16
  float (*sum)[kDim];                 // sums of weights times values
  float* max;      // largest score of each query. Whole tiles of max and total can be read.
  float* total;    // sum of the weights of each query
  uint16_t* seen;  // the positions of the chunk that each query sees, a bit each; at least one

  Queries From(int64_t query) const {
    return {pairs + query, sum + query, max + query, total + query, seen + query};
  }
};

// A chunk as products take it: pairs of bf16 in words, of dimensions or of positions.
struct Chunk {
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
                                             const Queries<kDim>& queries, const Chunk& chunk,
                                             uint32_t (&weights)[kQueries][kPairs],
                                             float (&corrections)[kTileQueries]) {
  const auto all = static_cast<__mmask8>((1u << kQueries) - 1);
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q) {
    const auto seen = static_cast<__mmask16>(queries.seen[q]);
    if constexpr (kScaled) scores[q] = _mm512_mul_ps(scores[q], _mm512_loadu_ps(chunk.k_scales));
    scores[q] = _mm512_mask_blend_ps(seen, _mm512_set1_ps(kMinusInfinity), scores[q]);
  }
#pragma GCC unroll 8
  for (int q = kQueries; q < kTileQueries; ++q) scores[q] = scores[0];
  const __m256 old = _mm256_loadu_ps(queries.max);
  const __m256 max = _mm256_max_ps(old, JoinLanes(scores, Larger()));
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
#pragma GCC unroll 8
  for (int q = kQueries; q < kTileQueries; ++q) scores[q] = scores[0];
  const __m512 moved = PowerOfTwo(_mm512_castps256_ps512(_mm256_sub_ps(old, max)));
  const __m256 correction = _mm256_mask_blend_ps(_mm256_cmp_ps_mask(old, max, _CMP_EQ_OQ),
                                                 _mm512_castps512_ps256(moved), _mm256_set1_ps(1));
  _mm256_storeu_ps(corrections, correction);
  const __m256 total = _mm256_add_ps(_mm256_mul_ps(_mm256_loadu_ps(queries.total), correction),
                                     JoinLanes(scores, Sum()));
  _mm256_mask_storeu_ps(queries.total, all, total);
}

// sum = sum * correction + weights times values, two positions at a time. values: [kPairs][kDim].
template <int kQueries, int kDim>
COPPICE_BF16_DOT inline void AddValues(float (*sums)[kDim], const uint32_t (*weights)[kPairs],
                                       const float* corrections, const uint32_t* values) {
  for (int j = 0; j < kDim; j += 64) {
    __m512 sum[kQueries][4];
#pragma GCC unroll 4
    for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        sum[q][i] =
            _mm512_mul_ps(_mm512_loadu_ps(sums[q] + j + 16 * i), _mm512_set1_ps(corrections[q]));
      }
    }
#pragma GCC unroll 8
    for (int t = 0; t < kPairs; ++t) {
      __m512i value[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) value[i] = _mm512_loadu_si512(values + t * kDim + j + 16 * i);
#pragma GCC unroll 4
      for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) sum[q][i] = Dot(sum[q][i], weights[q][t], value[i]);
      }
    }
#pragma GCC unroll 4
    for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) _mm512_storeu_ps(sums[q] + j + 16 * i, sum[q][i]);
    }
  }
}

// kQueries queries over a chunk. Every score is one chain of dot products in the order of the
// dimensions.
template <bool kScaled, int kQueries, int kDim>
COPPICE_BF16_DOT __attribute__((noinline)) void AttendTile(const Queries<kDim>& queries,
                                                           const Chunk& chunk) {
  __m512 scores[kTileQueries];
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q) scores[q] = _mm512_setzero_ps();
  const uint32_t* const pairs = queries.pairs[0];
  for (int j = 0; j < kDim / 2; ++j) {
    const __m512i key = _mm512_loadu_si512(chunk.keys + j * kBlockSize);
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) scores[q] = Dot(scores[q], pairs[q * (kDim / 2) + j], key);
  }
  uint32_t weights[kQueries][kPairs];
  float corrections[kTileQueries];
  ScoresToWeights<kScaled, kQueries>(scores, queries, chunk, weights, corrections);
  constexpr int kFirst = std::min(kQueries, kValueQueries), kSecond = kQueries - kFirst;
  AddValues<kFirst>(queries.sum, weights, corrections, chunk.values);
  if constexpr (kSecond > 0)
    AddValues<kSecond>(queries.sum + kFirst, weights + kFirst, corrections + kFirst, chunk.values);
}

// Any number of queries.
template <bool kScaled, int kDim, int kQueries = kTileQueries>
void AttendTiles(Queries<kDim> queries, int64_t count, const Chunk& chunk) {
  if constexpr (kQueries == kTileQueries) {
    for (; count >= kTileQueries; count -= kTileQueries, queries = queries.From(kTileQueries))
      AttendTile<kScaled, kTileQueries>(queries, chunk);
  } else if (count == kQueries) {
    return AttendTile<kScaled, kQueries>(queries, chunk);
  }
  if constexpr (kQueries > 1) AttendTiles<kScaled, kDim, kQueries - 1>(queries, count, chunk);
}

// The vectors of a chunk's positions, [head_dim] each: bf16, or codes, which bf16 holds exactly.
template <class T>
using Vectors = const T* [kBlockSize];

COPPICE_BF16_DOT inline __m512i Load32(const uint16_t* bf16) { return _mm512_loadu_si512(bf16); }
COPPICE_BF16_DOT inline __m512i Load32(const int8_t* codes) {
  const auto* const halves = reinterpret_cast<const __m128i*>(codes);
  const __m512 low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(halves)));
  const __m512 high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(halves + 1)));
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

// keys[pair of dimensions][position].
template <class T>
COPPICE_BF16_DOT void TransposeKeys(const Vectors<T>& k, int64_t dim, uint32_t* keys) {
  for (int64_t j = 0; j < dim; j += 32) {
    __m512i rows[16];
#pragma GCC unroll 16
    for (int t = 0; t < kBlockSize; ++t) rows[t] = Load32(k[t] + j);
    Transpose16(rows);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_storeu_si512(keys + (j / 2 + i) * kBlockSize, rows[i]);
  }
}

// values[pair of positions][dimension].
template <class T>
COPPICE_BF16_DOT void PairValues(const Vectors<T>& v, int64_t dim, uint32_t* values) {
  alignas(64) static constexpr uint16_t kLow[32] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                                    37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                                    11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i low = _mm512_load_si512(kLow);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
#pragma GCC unroll 8
  for (int t = 0; t < kPairs; ++t) {
    for (int64_t j = 0; j < dim; j += 32) {
      const __m512i even = Load32(v[2 * t] + j);
      const __m512i odd = Load32(v[2 * t + 1] + j);
      uint32_t* const out = values + t * dim + j;
      _mm512_storeu_si512(out, _mm512_permutex2var_epi16(even, low, odd));
      _mm512_storeu_si512(out + 16, _mm512_permutex2var_epi16(even, high, odd));
    }
  }
}

// The query times scale and log2(e), in pairs of bf16.
COPPICE_BF16_DOT void RoundQuery(const float* query, float factor, int64_t dim, uint32_t* pairs) {
  const __m512 scale = _mm512_set1_ps(static_cast<float>(1.4426950408889634 * factor));
  for (int64_t j = 0; j < dim; j += 16) {
    const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(query + j), scale);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(pairs + j / 2),
                        (__m256i)_mm512_cvtneps_pbh(scaled));
  }
}

COPPICE_BF16_DOT void Divide(const float* sum, float total, int64_t dim, float* out) {
  for (int64_t j = 0; j < dim; j += 16) {
    _mm512_storeu_ps(out + j, _mm512_div_ps(_mm512_loadu_ps(sum + j), _mm512_set1_ps(total)));
  }
}

// T: uint16_t for K and V in bf16, int8_t for codes.
template <class T, int kDim>
class UnitRunner {
 public:
  UnitRunner(const AttentionArgs& args, const AttentionUnit& unit, std::vector<float>* memory)
      : context_(args, unit), unit_(unit), seen_(unit.queries()) {
    const int64_t queries = unit.queries(), padded = queries + kTileQueries;
    const size_t needed =
        (2 * kPairs + 1) * kDim + 2 * kBlockSize + queries * (kDim / 2 + kDim) + 2 * padded;
    if (memory->size() < needed) memory->resize(needed);
    float* next = memory->data();
    const auto take = [&next](int64_t count) { return std::exchange(next, next + count); };
    // Words of pairs are as long as floats.
    chunk_.keys = reinterpret_cast<uint32_t*>(take(kPairs * kDim));
    chunk_.values = reinterpret_cast<uint32_t*>(take(kPairs * kDim));
    chunk_.k_scales = take(kBlockSize);
    chunk_.v_scales = take(kBlockSize);
    float* const zero = take(kDim / 2);
    std::fill_n(zero, kDim / 2, 0.0f);
    zero_ = reinterpret_cast<const T*>(zero);
    auto* const pairs = reinterpret_cast<uint32_t(*)[kDim / 2]>(take(queries * kDim / 2));
    queries_.pairs = pairs;
    queries_.sum = reinterpret_cast<float(*)[kDim]>(take(queries * kDim));
    queries_.max = take(padded);
    queries_.total = take(padded);
    queries_.seen = seen_.data();
    for (int64_t i = 0; i < queries; ++i)
      RoundQuery(context_.Query(i), args.rule.scale, kDim, pairs[i]);
    std::fill_n(queries_.sum[0], queries * kDim, 0.0f);
    std::fill_n(queries_.max, padded, kMinusInfinity);
    std::fill_n(queries_.total, padded, 0.0f);
  }

  void Run() {
    const int32_t longest = context_.Longest();
    for (int32_t first = context_.FirstChunk(); first < longest; first += kBlockSize)
      RunChunk(first);
    for (int64_t i = 0; i < unit_.queries(); ++i)
      Divide(queries_.sum[i], queries_.total[i], kDim, context_.Out(i));
  }

 private:
  // Runs of rows whose chunk is the same block share it. The others have their own vectors.
  void RunChunk(int32_t first) {
    if (context_.SeenByAll(first)) {
      std::fill(seen_.begin(), seen_.end(), 0xffff);
      TakeBlock(0, first, kBlockSize);
      return AttendRows(0, unit_.rows());
    }
    for (int64_t row = 0; row < unit_.rows();) {
      const int64_t begin = row++;
      int most = context_.PositionsOf(begin, first);
      if (most == 0) continue;
      SetSeen(begin, first);
      if (!context_.SeesBlock(begin, first)) {
        TakeOwn(begin, first);
      } else {
        for (; row < unit_.rows() && context_.SeesBlock(row, first) &&
               context_.Share(begin, row, first);
             ++row) {
          SetSeen(row, first);
          most = std::max(most, context_.PositionsOf(row, first));
        }
        TakeBlock(begin, first, most);
      }
      AttendRows(begin, row);
    }
  }

  void SetSeen(int64_t row, int32_t first) {
    const uint32_t present = (1u << context_.PositionsOf(row, first)) - 1;
    const uint32_t hidden = (1u << context_.HiddenOf(row, first)) - 1;
    std::fill_n(queries_.seen + row * unit_.heads, unit_.heads,
                static_cast<uint16_t>(present & ~hidden));
  }
  void AttendRows(int64_t begin, int64_t end) {
    AttendTiles<kScaled>(queries_.From(begin * unit_.heads), (end - begin) * unit_.heads, chunk_);
  }

  // `most`: positions that some row sees. Memory after them may hold anything, including NaN.
  void TakeBlock(int64_t row, int32_t first, int most) {
    context_.Fetch(row, first + kBlockSize);
    const auto* const k = reinterpret_cast<const T*>(context_.Block(row, first, false));
    const auto* const v = reinterpret_cast<const T*>(context_.Block(row, first, true));
    Take(most, [&](int t, bool value) { return (value ? v : k) + t * kDim; });
    if constexpr (kScaled) {
      const float* const of_k = context_.BlockScales(row, first, false);
      const float* const of_v = context_.BlockScales(row, first, true);
      TakeScales(most, [&](int t, bool value) { return (value ? of_v : of_k)[t]; });
    }
  }

  void TakeOwn(int64_t row, int32_t first) {
    const int positions = context_.PositionsOf(row, first);
    Take(positions, [&](int t, bool value) {
      return reinterpret_cast<const T*>(context_.Vector(row, first + t, value));
    });
    if constexpr (kScaled) {
      TakeScales(positions,
                 [&](int t, bool value) { return context_.ScaleOf(row, first + t, value); });
    }
  }

  template <class VectorOf>
  void Take(int positions, VectorOf vector_of) {
    Vectors<T> k, v;
    for (int t = 0; t < kBlockSize; ++t) {
      k[t] = t < positions ? vector_of(t, false) : zero_;
      v[t] = t < positions ? vector_of(t, true) : zero_;
    }
    TransposeKeys<T>(k, kDim, chunk_.keys);
    PairValues<T>(v, kDim, chunk_.values);
  }

  template <class ScaleOf>
  void TakeScales(int positions, ScaleOf scale_of) {
    for (int t = 0; t < kBlockSize; ++t) {
      chunk_.k_scales[t] = t < positions ? scale_of(t, false) : 0;
      chunk_.v_scales[t] = t < positions ? scale_of(t, true) : 0;
    }
  }

  static constexpr bool kScaled = std::is_same_v<T, int8_t>;

  const UnitContext context_;
  const AttentionUnit& unit_;
  std::vector<uint16_t> seen_;
  Queries<kDim> queries_;  // queries of the unit
  const T* zero_;          // [kDim]
  Chunk chunk_;
};

}  // namespace

bool AttendsWithBf16Dot(const KvPoolShape& shape, const AttentionRule& rule) {
  return rule.softcap == 0 && (shape.dtype == DType::kBF16 || shape.dtype == DType::kI8) &&
         (shape.head_dim == 64 || shape.head_dim == 128) &&
         CurrentKernelTarget() == KernelTarget::kAvx512Bf16;
}

void AttendUnitBf16(const AttentionArgs& args, const AttentionUnit& unit,
                    std::vector<float>* memory) {
  const bool codes = args.pool->scaled();
  if (args.pool->shape.head_dim == 64) {
    codes ? UnitRunner<int8_t, 64>(args, unit, memory).Run()
          : UnitRunner<uint16_t, 64>(args, unit, memory).Run();
  } else {
    codes ? UnitRunner<int8_t, 128>(args, unit, memory).Run()
          : UnitRunner<uint16_t, 128>(args, unit, memory).Run();
  }
}

}  // namespace coppice::kernels::cpu

#else  // no such instructions, so Attention never comes here

namespace coppice::kernels::cpu {

bool AttendsWithBf16Dot(const KvPoolShape&, const AttentionRule&) { return false; }

void AttendUnitBf16(const AttentionArgs&, const AttentionUnit&, std::vector<float>*) {
  COPPICE_CHECK_MSG(false, "bf16 dot products are for x86");
}

}  // namespace coppice::kernels::cpu

#endif
