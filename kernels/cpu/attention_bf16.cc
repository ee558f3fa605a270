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
#include "kernels/cpu/attention_bf16_tile.h"

namespace coppice::kernels::cpu {
namespace {

// The vectors of a chunk's positions, [head_dim] each: bf16, or codes, which bf16 holds exactly. In
// a block they follow each other.
template <class T>
using Vectors = const T* [kBlockSize];
template <class T, int kDim>
struct BlockVectors {
  const T* first;
  const T* operator[](int t) const { return first + t * kDim; }
};

COPPICE_BF16_DOT inline __m512i Load32(const uint16_t* bf16) { return _mm512_loadu_si512(bf16); }
COPPICE_BF16_DOT inline __m512i Load32(const int8_t* codes) {
  const auto* const halves = reinterpret_cast<const __m128i*>(codes);
  const __m512 low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(halves)));
  const __m512 high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(halves + 1)));
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

// keys[pair of dimensions][position].
template <class Vectors>
COPPICE_BF16_DOT void TransposeKeys(const Vectors& k, int64_t dim, uint32_t* keys) {
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
template <class Vectors>
COPPICE_BF16_DOT void PairValues(const Vectors& v, int64_t dim, uint32_t* values) {
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

constexpr int64_t kLine = 16;  // floats of a cache line
float* AlignedToLine(float* p) {
  return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(p) + 63) / 64 * 64);
}

// T: uint16_t for K and V in bf16, int8_t for codes.
template <class T, int kDim>
class UnitRunner {
 public:
  UnitRunner(const AttentionArgs& args, const AttentionUnit& unit, std::vector<float>* memory)
      : context_(args, unit), unit_(unit), seen_(unit.queries_of_head()) {
    const int64_t queries = unit.queries(), padded = queries + kTileQueries;
    const size_t needed = kLine + 2 * (2 * kPairs * kDim + 2 * kBlockSize) + kDim +
                          queries * (kDim / 2 + kDim) + 2 * padded;
    if (memory->size() < needed) memory->resize(needed);
    float* next = AlignedToLine(memory->data());
    const auto take = [&next](int64_t count) { return std::exchange(next, next + count); };
    // Words of pairs are as long as floats.
    for (Bf16Chunk& chunk : chunks_) {
      chunk.keys = reinterpret_cast<uint32_t*>(take(kPairs * kDim));
      chunk.values = reinterpret_cast<uint32_t*>(take(kPairs * kDim));
      chunk.k_scales = take(kBlockSize);
      chunk.v_scales = take(kBlockSize);
    }
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
    for (int32_t first = context_.FirstChunk(); first < longest; first += kBlockSize) {
      head_ = 0;
      if (!context_.SeenByAll(first)) {
        for (; head_ < unit_.kv_heads; ++head_) RunChunk(first);
        continue;
      }
      std::fill(seen_.begin(), seen_.end(), kAllSeen);
      if (unit_.kv_heads > 1) {
        RunSeenByAll(first);
      } else if (context_.SeenByAll(first + kBlockSize)) {
        RunTwoBlocks(first);
        first += kBlockSize;
      } else {
        TakeBlock(0, first, kBlockSize, &chunks_[0]);
        AttendRows(0, unit_.rows());
      }
    }
    for (int64_t i = 0; i < unit_.queries(); ++i)
      Divide(queries_.sum[i], queries_.total[i], kDim, context_.Out(i));
  }

 private:
  // A chunk that every row sees, of several KV heads, two at a time. They lie one behind the other,
  // and are read in this order as fast as memory allows.
  void RunSeenByAll(int32_t first) {
    for (; head_ < unit_.kv_heads; ++head_) {
      TakeBlock(0, first, kBlockSize, &chunks_[0]);
      if (head_ + 1 == unit_.kv_heads) return AttendRows(0, unit_.rows());
      ++head_;
      TakeBlock(0, first, kBlockSize, &chunks_[1]);
      const int64_t queries = unit_.queries_of_head();
      AttendTiles<kScaled, Chunks::kOfTwoHeads>(queries_.OfHead(head_ - 1, queries), queries,
                                                queries, chunks_);
    }
  }
  // Two chunks of one KV head that every row sees.
  void RunTwoBlocks(int32_t first) {
    TakeBlock(0, first, kBlockSize, &chunks_[0]);
    TakeBlock(0, first + kBlockSize, kBlockSize, &chunks_[1]);
    AttendTiles<kScaled, Chunks::kTwoInOrder>(queries_, unit_.queries(), 0, chunks_);
  }

  // Runs of rows whose chunk is the same block share it. The others have their own vectors.
  void RunChunk(int32_t first) {
    for (int64_t row = 0; row < unit_.rows();) {
      const int64_t begin = row++;
      int most = context_.PositionsOf(begin, first);
      if (most == 0) continue;
      SetSeen(begin, first);
      if (!context_.SeesBlock(begin, first)) {
        TakeOwn(begin, first, &chunks_[0]);
      } else {
        for (; row < unit_.rows() && context_.SeesBlock(row, first) &&
               context_.Share(begin, row, first);
             ++row) {
          SetSeen(row, first);
          most = std::max(most, context_.PositionsOf(row, first));
        }
        TakeBlock(begin, first, most, &chunks_[0]);
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
    const Bf16Queries<kDim> queries = queries_.OfHead(head_, unit_.queries_of_head());
    AttendTiles<kScaled, Chunks::kOne>(queries.From(begin * unit_.heads),
                                       (end - begin) * unit_.heads, 0, chunks_);
  }

  // `most`: positions that some row sees. Memory after them may hold anything, including NaN.
  void TakeBlock(int64_t row, int32_t first, int most, Bf16Chunk* chunk) {
    context_.FetchAhead(head_, row, first);
    const auto* const k = reinterpret_cast<const T*>(context_.Block(head_, row, first, false));
    const auto* const v = reinterpret_cast<const T*>(context_.Block(head_, row, first, true));
    if (most == kBlockSize) {
      TransposeKeys(BlockVectors<T, kDim>{k}, kDim, chunk->keys);
      PairValues(BlockVectors<T, kDim>{v}, kDim, chunk->values);
    } else {
      Take(most, chunk, [&](int t, bool value) { return (value ? v : k) + t * kDim; });
    }
    if constexpr (kScaled) {
      const float* const of_k = context_.BlockScales(head_, row, first, false);
      const float* const of_v = context_.BlockScales(head_, row, first, true);
      TakeScales(most, chunk, [&](int t, bool value) { return (value ? of_v : of_k)[t]; });
    }
  }

  void TakeOwn(int64_t row, int32_t first, Bf16Chunk* chunk) {
    const int positions = context_.PositionsOf(row, first);
    Take(positions, chunk, [&](int t, bool value) {
      return reinterpret_cast<const T*>(context_.Vector(head_, row, first + t, value));
    });
    if constexpr (kScaled) {
      TakeScales(positions, chunk,
                 [&](int t, bool value) { return context_.ScaleOf(head_, row, first + t, value); });
    }
  }

  template <class VectorOf>
  void Take(int positions, Bf16Chunk* chunk, VectorOf vector_of) {
    Vectors<T> k, v;
    for (int t = 0; t < kBlockSize; ++t) {
      k[t] = t < positions ? vector_of(t, false) : zero_;
      v[t] = t < positions ? vector_of(t, true) : zero_;
    }
    TransposeKeys(k, kDim, chunk->keys);
    PairValues(v, kDim, chunk->values);
  }

  template <class ScaleOf>
  void TakeScales(int positions, Bf16Chunk* chunk, ScaleOf scale_of) {
    for (int t = 0; t < kBlockSize; ++t) {
      chunk->k_scales[t] = t < positions ? scale_of(t, false) : 0;
      chunk->v_scales[t] = t < positions ? scale_of(t, true) : 0;
    }
  }

  static constexpr bool kScaled = std::is_same_v<T, int8_t>;

  const UnitContext context_;
  const AttentionUnit& unit_;
  static constexpr uint16_t kAllSeen = 0xffff;
  int head_ = 0;  // the KV head in work
  std::vector<uint16_t> seen_;
  Bf16Queries<kDim> queries_;  // queries of the unit
  const T* zero_;              // [kDim]
  Bf16Chunk chunks_[2];
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
