#include "sampling/row_kernels.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "sampling/deterministic_math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sampling/row_kernels.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace coppice::sampling {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F64 = hn::CappedTag<double, 8>;
using U64 = hn::RebindToUnsigned<F64>;
using F32Half = hn::Rebind<float, F64>;
using VF64 = hn::Vec<F64>;
using VU64 = hn::Vec<U64>;

constexpr size_t kLanes = hn::MaxLanes(F64());
constexpr size_t kAccumulators = 8;
constexpr size_t kVectors = kAccumulators / kLanes;

// c0 + c1 r + c2 r^2 + c3 r^3.
HWY_INLINE VF64 Quad(VF64 r, VF64 r2, double c0, double c1, double c2, double c3) {
  const F64 d;
  const VF64 low = hn::Add(hn::Set(d, c0), hn::Mul(hn::Set(d, c1), r));
  const VF64 high = hn::Add(hn::Set(d, c2), hn::Mul(hn::Set(d, c3), r));
  return hn::Add(low, hn::Mul(high, r2));
}

// exp(x) for x <= 0, and 0 below -700. The polynomial of sampling/deterministic_math.cc, summed
// pairwise.
HWY_INLINE VF64 ExpNonPositive(VF64 x) {
  const F64 d;
  const U64 du;
  const auto tiny = hn::Lt(x, hn::Set(d, -700.0));
  const VF64 clamped = hn::Max(x, hn::Set(d, -700.0));
  const VF64 magic = hn::Set(d, 0x1.8p52);
  const VF64 shifted = hn::Add(hn::Mul(clamped, hn::Set(d, 1.4426950408889634)), magic);
  const VF64 k = hn::Sub(shifted, magic);
  const VF64 high = hn::Sub(clamped, hn::Mul(k, hn::Set(d, 6.93147180369123816490e-01)));
  const VF64 low = hn::Mul(k, hn::Set(d, 1.90821492927058770002e-10));
  const VF64 r = hn::Sub(high, low);
  const VF64 r2 = hn::Mul(r, r);
  const VF64 r4 = hn::Mul(r2, r2);
  const VF64 p0 = Quad(r, r2, 0.5, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0);
  const VF64 p4 = Quad(r, r2, 1.0 / 720.0, 1.0 / 5040.0, 1.0 / 40320.0, 1.0 / 362880.0);
  const VF64 p8 =
      Quad(r, r2, 1.0 / 3628800.0, 1.0 / 39916800.0, 1.0 / 479001600.0, 1.0 / 6227020800.0);
  const VF64 p = hn::Add(p0, hn::Mul(r4, hn::Add(p4, hn::Mul(r4, p8))));
  const VF64 error = hn::Sub(hn::Sub(high, r), low);
  const VF64 y = hn::Add(hn::Set(d, 1.0), hn::Add(r, hn::Add(hn::Mul(r2, p), error)));
  const VU64 power = hn::ShiftLeft<52>(hn::Add(hn::BitCast(du, shifted), hn::Set(du, 1023)));
  return hn::IfThenZeroElse(tiny, hn::Mul(y, hn::BitCast(d, power)));
}

// Entries as f64; of f32 logits, as WidenRow says.
HWY_INLINE VF64 LoadWide(const double* HWY_RESTRICT x) { return hn::LoadU(F64(), x); }
HWY_INLINE VF64 LoadWide(const float* HWY_RESTRICT logits) {
  const F64 d;
  const VF64 v = hn::PromoteTo(d, hn::LoadU(F32Half(), logits));
  const VF64 largest = hn::Set(d, static_cast<double>(std::numeric_limits<float>::max()));
  return hn::IfThenElse(hn::Eq(v, v), hn::Min(v, largest),
                        hn::Set(d, -std::numeric_limits<double>::infinity()));
}
HWY_INLINE double WideOf(double x) { return x; }
HWY_INLINE double WideOf(float logit) {
  const double v = logit;
  return v == v ? std::min<double>(v, std::numeric_limits<float>::max())
                : -std::numeric_limits<double>::infinity();
}

void WidenRowImpl(absl::Span<const float> logits, double* HWY_RESTRICT x) {
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes)
    hn::StoreU(LoadWide(logits.data() + i), F64(), x + i);
  for (; i < logits.size(); ++i) x[i] = WideOf(logits[i]);
}

void DivideRowImpl(double divisor, double* HWY_RESTRICT x, size_t n) {
  const F64 d;
  const VF64 by = hn::Set(d, divisor);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(hn::Div(hn::LoadU(d, x + i), by), d, x + i);
  for (; i < n; ++i) x[i] /= divisor;
}

template <typename Real>
double MaxOf(const Real* HWY_RESTRICT x, size_t n) {
  const F64 d;
  VF64 best = hn::Set(d, -std::numeric_limits<double>::infinity());
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) best = hn::Max(best, LoadWide(x + i));
  alignas(64) double lanes[kLanes];
  hn::Store(best, d, lanes);
  double result = *std::max_element(lanes, lanes + kLanes);
  for (; i < n; ++i) result = std::max(result, WideOf(x[i]));
  return result;
}
double MaxImpl(const double* HWY_RESTRICT x, size_t n) { return MaxOf(x, n); }
double FloatMaxImpl(const float* HWY_RESTRICT logits, size_t n) { return MaxOf(logits, n); }

void BlockMaximaImpl(const double* HWY_RESTRICT x, size_t n, double* HWY_RESTRICT maxima) {
  for (size_t begin = 0; begin < n; begin += kMaxBlock) {
    *maxima++ = MaxOf(x + begin, std::min(kMaxBlock, n - begin));
  }
}

void FloatBlockMaximaImpl(const float* HWY_RESTRICT x, size_t n, float* HWY_RESTRICT maxima) {
  const hn::CappedTag<float, 16> d;
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  const size_t lanes = hn::Lanes(d);
  for (size_t begin = 0; begin < n; begin += kMaxBlock) {
    const size_t end = std::min(n, begin + kMaxBlock);
    auto best = lowest;
    size_t i = begin;
    for (; i + lanes <= end; i += lanes) {
      const auto v = hn::LoadU(d, x + i);
      best = hn::Max(best, hn::IfThenElse(hn::Eq(v, v), v, lowest));
    }
    alignas(64) float out[16];
    hn::Store(best, d, out);
    float result = *std::max_element(out, out + lanes);
    for (; i < end; ++i) result = x[i] > result ? x[i] : result;
    *maxima++ = result;
  }
}

// Adds exp(x - max) of eight entries to the accumulators and, if wanted, stores it as f32.
template <typename Real>
HWY_INLINE void AccumulateEight(const Real* HWY_RESTRICT x, VF64 max, VF64* sums,
                                float* HWY_RESTRICT weights) {
  const F32Half df;
  for (size_t j = 0; j < kVectors; ++j) {
    const VF64 e = ExpNonPositive(hn::Sub(LoadWide(x + j * kLanes), max));
    sums[j] = hn::Add(sums[j], e);
    if (weights != nullptr) hn::StoreU(hn::DemoteTo(df, e), df, weights + j * kLanes);
  }
}

// sum exp(x - max) over one chunk. The weights are f32, relative to the chunk's maximum.
template <typename Real>
double ChunkSumOf(const Real* HWY_RESTRICT x, size_t n, double max, float* HWY_RESTRICT weights) {
  const F64 d;
  VF64 sums[kVectors];
  for (VF64& sum : sums) sum = hn::Zero(d);
  const VF64 maxima = hn::Set(d, max);
  size_t i = 0;
  for (; i + kAccumulators <= n; i += kAccumulators) {
    AccumulateEight(x + i, maxima, sums, weights == nullptr ? nullptr : weights + i);
  }
  if (i < n) {
    double tail[kAccumulators];
    float tail_weights[kAccumulators];
    std::fill(tail, tail + kAccumulators, -std::numeric_limits<double>::infinity());
    for (size_t j = i; j < n; ++j) tail[j - i] = WideOf(x[j]);
    AccumulateEight(tail, maxima, sums, tail_weights);
    if (weights != nullptr) std::copy(tail_weights, tail_weights + (n - i), weights + i);
  }
  alignas(64) double a[kAccumulators];
  for (size_t j = 0; j < kVectors; ++j) hn::Store(sums[j], d, a + j * kLanes);
  return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}
double ChunkSumImpl(const double* HWY_RESTRICT x, size_t n, double max,
                    float* HWY_RESTRICT weights) {
  return ChunkSumOf(x, n, max, weights);
}
double FloatChunkSumImpl(const float* HWY_RESTRICT logits, size_t n, double max) {
  return ChunkSumOf(logits, n, max, nullptr);
}

void ScaleWeightsImpl(float scale, float* HWY_RESTRICT weights, size_t n) {
  const hn::CappedTag<float, 16> d;
  const auto factor = hn::Set(d, scale);
  const auto floor = hn::Set(d, std::numeric_limits<float>::min());
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Max(hn::Mul(hn::LoadU(d, weights + i), factor), floor), d, weights + i);
  }
  for (; i < n; ++i) weights[i] = std::max(weights[i] * scale, std::numeric_limits<float>::min());
}

}  // namespace HWY_NAMESPACE
}  // namespace coppice::sampling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::sampling {

HWY_EXPORT(WidenRowImpl);
HWY_EXPORT(DivideRowImpl);
HWY_EXPORT(MaxImpl);
HWY_EXPORT(FloatMaxImpl);
HWY_EXPORT(BlockMaximaImpl);
HWY_EXPORT(FloatBlockMaximaImpl);
HWY_EXPORT(ChunkSumImpl);
HWY_EXPORT(FloatChunkSumImpl);
HWY_EXPORT(ScaleWeightsImpl);

void WidenRow(absl::Span<const float> logits, double* x) {
  HWY_DYNAMIC_DISPATCH(WidenRowImpl)(logits, x);
}

void DivideRow(double divisor, absl::Span<double> x) {
  HWY_DYNAMIC_DISPATCH(DivideRowImpl)(divisor, x.data(), x.size());
}

namespace {

// Also fills `weights`, relative to the chunk's maximum, if not null.
void SumChunkOf(absl::Span<const double> x, double* max, double* sum, float* weights) {
  *max = HWY_DYNAMIC_DISPATCH(MaxImpl)(x.data(), x.size());
  *sum = 0;
  if (*max == -std::numeric_limits<double>::infinity()) {
    if (weights != nullptr) std::fill(weights, weights + x.size(), 0.0f);
    return;
  }
  *sum = HWY_DYNAMIC_DISPATCH(ChunkSumImpl)(x.data(), x.size(), *max, weights);
}

// The factor of a chunk's sum in the sum of the whole row.
double ChunkScale(const ChunkSums& chunks, int c, double max) {
  return chunks.sum[c] == 0 ? 0 : Exp(chunks.max[c] - max);
}

}  // namespace

void SumChunk(absl::Span<const double> x, double* max, double* sum) {
  SumChunkOf(x, max, sum, nullptr);
}

LogSum JoinChunks(const ChunkSums& chunks) {
  LogSum result{-1, -std::numeric_limits<double>::infinity(),
                -std::numeric_limits<double>::infinity()};
  for (double max : chunks.max) result.max = std::max(result.max, max);
  double total = 0;
  for (int c = 0; c < kLseChunks; ++c) total += chunks.sum[c] * ChunkScale(chunks, c, result.max);
  if (total > 0) result.log = result.max + Log(total);
  return result;
}

LogSum LogitsLogSumExp(absl::Span<const float> logits) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  const size_t n = logits.size();
  ChunkSums chunks;
  for (int c = 0; c < kLseChunks; ++c) {
    const size_t begin = c * n / kLseChunks, end = (c + 1) * n / kLseChunks;
    const float* chunk = logits.data() + begin;
    chunks.max[c] = HWY_DYNAMIC_DISPATCH(FloatMaxImpl)(chunk, end - begin);
    chunks.sum[c] = chunks.max[c] == kNone ? 0
                                           : HWY_DYNAMIC_DISPATCH(FloatChunkSumImpl)(
                                                 chunk, end - begin, chunks.max[c]);
  }
  return JoinChunks(chunks);
}

LogSum ChunkedLogSumExp(absl::Span<const double> x, float* weights) {
  const size_t n = x.size();
  ChunkSums chunks;
  const auto begin = [n](int c) { return c * n / kLseChunks; };
  for (int c = 0; c < kLseChunks; ++c) {
    SumChunkOf(x.subspan(begin(c), begin(c + 1) - begin(c)), &chunks.max[c], &chunks.sum[c],
               weights == nullptr ? nullptr : weights + begin(c));
  }
  LogSum result = JoinChunks(chunks);
  if (weights != nullptr) {
    for (int c = 0; c < kLseChunks; ++c) {
      HWY_DYNAMIC_DISPATCH(ScaleWeightsImpl)
      (static_cast<float>(ChunkScale(chunks, c, result.max)), weights + begin(c),
       begin(c + 1) - begin(c));
    }
    std::fill(weights + n, weights + (n + kRowPadding - 1) / kRowPadding * kRowPadding, 0.0f);
  }
  result.argmax = 0;
  for (int c = 0; c < kLseChunks; ++c) {
    if (chunks.max[c] != result.max || begin(c) == begin(c + 1)) continue;
    result.argmax =
        static_cast<TokenId>(std::find(x.begin() + begin(c), x.end(), result.max) - x.begin());
    break;
  }
  return result;
}

double SumOfExp(absl::Span<const double> x, double max) {
  return HWY_DYNAMIC_DISPATCH(ChunkSumImpl)(x.data(), x.size(), max, nullptr);
}

void BlockMaxima(absl::Span<const double> x, std::vector<double>* maxima) {
  maxima->resize((x.size() + kMaxBlock - 1) / kMaxBlock);
  HWY_DYNAMIC_DISPATCH(BlockMaximaImpl)(x.data(), x.size(), maxima->data());
}

void CollectAtLeast(absl::Span<const double> x, absl::Span<const double> block_maxima,
                    double threshold, std::vector<TokenId>* tokens) {
  tokens->clear();
  for (size_t b = 0; b < block_maxima.size(); ++b) {
    if (block_maxima[b] < threshold) continue;
    const size_t end = std::min(x.size(), (b + 1) * kMaxBlock);
    for (size_t v = b * kMaxBlock; v < end; ++v) {
      if (x[v] >= threshold) tokens->push_back(static_cast<TokenId>(v));
    }
  }
}

void LogitMaxima(absl::Span<const float> logits, std::vector<float>* maxima) {
  maxima->resize((logits.size() + kMaxBlock - 1) / kMaxBlock);
  HWY_DYNAMIC_DISPATCH(FloatBlockMaximaImpl)(logits.data(), logits.size(), maxima->data());
}

float LeastOfLargest(absl::Span<const float> maxima, size_t count) {
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  if (count > maxima.size()) return kLowest;
  std::vector<float> sorted(maxima.begin(), maxima.end());
  std::nth_element(sorted.begin(), sorted.begin() + (count - 1), sorted.end(), std::greater<>());
  return std::max(kLowest, sorted[count - 1]);
}

void CollectLogits(absl::Span<const float> logits, absl::Span<const float> maxima, double threshold,
                   std::vector<TokenId>* tokens) {
  tokens->clear();
  for (size_t b = 0; b < maxima.size(); ++b) {
    if (maxima[b] < threshold) continue;
    const size_t end = std::min(logits.size(), (b + 1) * kMaxBlock);
    for (size_t v = b * kMaxBlock; v < end; ++v) {
      if (logits[v] >= threshold) tokens->push_back(static_cast<TokenId>(v));
    }
  }
}

std::vector<TokenId> LargestLogits(absl::Span<const float> logits, size_t count) {
  std::vector<float> maxima;
  LogitMaxima(logits, &maxima);
  std::vector<TokenId> tokens;
  CollectLogits(logits, maxima, LeastOfLargest(maxima, count), &tokens);
  return tokens;
}

}  // namespace coppice::sampling
#endif  // HWY_ONCE
