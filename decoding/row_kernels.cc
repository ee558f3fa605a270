#include "decoding/row_kernels.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "base/deterministic_math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "decoding/row_kernels.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace coppice {
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

// exp(x) for x <= 0, 0 below -700: the polynomial of base/deterministic_math.cc, summed pairwise.
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

// log(x) for positive normal x, operation for operation as Log of base/deterministic_math.cc.
HWY_INLINE VF64 LogNormal(VF64 x) {
  const F64 d;
  const U64 du;
  const VU64 bits = hn::BitCast(du, x);
  const VF64 one = hn::Set(d, 1.0);
  // The biased exponent as a double: put it into the mantissa of 2^52.
  const VU64 exponent = hn::Or(hn::ShiftRight<52>(bits), hn::Set(du, 0x4330000000000000ull));
  VF64 k = hn::Sub(hn::BitCast(d, exponent), hn::Set(d, 4503599627370496.0 + 1023.0));
  VF64 m = hn::BitCast(d, hn::Or(hn::And(bits, hn::Set(du, 0x000FFFFFFFFFFFFFull)),
                                 hn::Set(du, 0x3FF0000000000000ull)));
  const auto large = hn::Gt(m, hn::Set(d, 1.4142135623730951));
  m = hn::IfThenElse(large, hn::Mul(m, hn::Set(d, 0.5)), m);
  k = hn::IfThenElse(large, hn::Add(k, one), k);
  const VF64 f = hn::Sub(m, one);
  const VF64 s = hn::Div(f, hn::Add(hn::Set(d, 2.0), f));
  const VF64 z = hn::Mul(s, s);
  VF64 p = hn::Set(d, 2.0 / 23);
  p = hn::Add(hn::Mul(p, z), hn::Set(d, 2.0 / 21));
  p = hn::Add(hn::Mul(p, z), hn::Set(d, 2.0 / 19));
  p = hn::Add(hn::Mul(p, z), hn::Set(d, 2.0 / 17));
  p = hn::Add(hn::Mul(p, z), hn::Set(d, 2.0 / 15));
  p = hn::Add(hn::Mul(p, z), hn::Set(d, 2.0 / 13));
  p = hn::Add(hn::Mul(p, z), hn::Set(d, 2.0 / 11));
  p = hn::Add(hn::Mul(p, z), hn::Set(d, 2.0 / 9));
  p = hn::Add(hn::Mul(p, z), hn::Set(d, 2.0 / 7));
  p = hn::Add(hn::Mul(p, z), hn::Set(d, 2.0 / 5));
  p = hn::Add(hn::Mul(p, z), hn::Set(d, 2.0 / 3));
  p = hn::Mul(p, z);
  const VF64 half = hn::Mul(hn::Mul(hn::Set(d, 0.5), f), f);
  const VF64 correction =
      hn::Add(hn::Mul(s, hn::Add(half, p)), hn::Mul(k, hn::Set(d, 1.90821492927058770002e-10)));
  return hn::Sub(hn::Mul(k, hn::Set(d, 6.93147180369123816490e-01)),
                 hn::Sub(hn::Sub(half, correction), f));
}

HWY_INLINE VU64 MulLow32(VU64 a, VU64 b) {
#if HWY_TARGET == HWY_SCALAR
  return VU64((a.raw & 0xFFFFFFFFull) * b.raw);
#else
  const hn::Repartition<uint32_t, F64> d;
  return hn::MulEven(hn::BitCast(d, a), hn::BitCast(d, b));
#endif
}

// Philox4x32-10 of one counter per 64-bit lane; the upper half of every word is garbage until the
// end.
struct PhiloxWords {
  VU64 x0, x1, x2, x3;
};

// What all counters of one draw share.
struct PhiloxKeys {
  VU64 c1, c3;
  VU64 k0[10], k1[10];
};

HWY_INLINE PhiloxKeys SpreadKey(const NoiseKey& key) {
  const U64 d;
  PhiloxKeys keys;
  keys.c1 = hn::Set(d, key.hash & 0xFFFFFFFFu);
  keys.c3 = hn::Set(d, (static_cast<uint64_t>(key.domain) << 24) | key.slot);
  uint32_t k0 = static_cast<uint32_t>(key.seed);
  uint32_t k1 = static_cast<uint32_t>(key.seed >> 32);
  const VU64 c2 = hn::Set(d, key.hash >> 32);
  for (int round = 0; round < 10; ++round) {
    keys.k0[round] = hn::Set(d, k0);
    keys.k1[round] = hn::Set(d, k1);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  // The first round's product of c2 is the same for all: fold its words into c1 and the first key.
  const VU64 product = MulLow32(c2, hn::Set(d, 0xCD9E8D57u));
  keys.k0[0] = hn::Xor(hn::Xor(keys.k0[0], keys.c1), hn::ShiftRight<32>(product));
  keys.k1[0] = hn::Xor(keys.k1[0], keys.c3);
  keys.c1 = product;
  return keys;
}

HWY_INLINE PhiloxWords FirstRound(VU64 block, const PhiloxKeys& keys) {
  const U64 d;
  const VU64 product = MulLow32(block, hn::Set(d, 0xD2511F53u));
  return {keys.k0[0], keys.c1, hn::Xor(hn::ShiftRight<32>(product), keys.k1[0]), product};
}

HWY_INLINE void NextRound(int round, const PhiloxKeys& keys, PhiloxWords* c) {
  const U64 d;
  const VU64 a = MulLow32(c->x0, hn::Set(d, 0xD2511F53u));
  const VU64 b = MulLow32(c->x2, hn::Set(d, 0xCD9E8D57u));
  c->x0 = hn::Xor(hn::ShiftRight<32>(b), hn::Xor(c->x1, keys.k0[round]));
  c->x2 = hn::Xor(hn::ShiftRight<32>(a), hn::Xor(c->x3, keys.k1[round]));
  c->x1 = b;
  c->x3 = a;
}

HWY_INLINE PhiloxWords PhiloxLanes(VU64 block, const PhiloxKeys& keys) {
  PhiloxWords words = FirstRound(block, keys);
  for (int round = 1; round < 10; ++round) NextRound(round, keys, &words);
  return words;
}

void WidenRowImpl(absl::Span<const float> logits, double* HWY_RESTRICT x) {
  const F64 d;
  const F32Half df;
  const VF64 lowest = hn::Set(d, -std::numeric_limits<double>::infinity());
  const VF64 largest = hn::Set(d, static_cast<double>(std::numeric_limits<float>::max()));
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    const VF64 v = hn::PromoteTo(d, hn::LoadU(df, logits.data() + i));
    hn::StoreU(hn::IfThenElse(hn::Eq(v, v), hn::Min(v, largest), lowest), d, x + i);
  }
  for (; i < logits.size(); ++i) {
    const double v = logits[i];
    x[i] = v == v ? std::min<double>(v, std::numeric_limits<float>::max())
                  : -std::numeric_limits<double>::infinity();
  }
}

void DivideRowImpl(double divisor, double* HWY_RESTRICT x, size_t n) {
  const F64 d;
  const VF64 by = hn::Set(d, divisor);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(hn::Div(hn::LoadU(d, x + i), by), d, x + i);
  for (; i < n; ++i) x[i] /= divisor;
}

double MaxImpl(const double* HWY_RESTRICT x, size_t n) {
  const F64 d;
  VF64 best = hn::Set(d, -std::numeric_limits<double>::infinity());
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) best = hn::Max(best, hn::LoadU(d, x + i));
  alignas(64) double lanes[kLanes];
  hn::Store(best, d, lanes);
  double result = *std::max_element(lanes, lanes + kLanes);
  for (; i < n; ++i) result = std::max(result, x[i]);
  return result;
}

void BlockMaximaImpl(const double* HWY_RESTRICT x, size_t n, double* HWY_RESTRICT maxima) {
  for (size_t begin = 0; begin < n; begin += kMaxBlock) {
    *maxima++ = MaxImpl(x + begin, std::min(kMaxBlock, n - begin));
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

// Eight entries: exp(x - max) into the accumulators and, if wanted, as f32.
HWY_INLINE void AccumulateEight(const double* HWY_RESTRICT x, VF64 max, VF64* sums,
                                float* HWY_RESTRICT weights) {
  const F64 d;
  const F32Half df;
  for (size_t j = 0; j < kVectors; ++j) {
    const VF64 e = ExpNonPositive(hn::Sub(hn::LoadU(d, x + j * kLanes), max));
    sums[j] = hn::Add(sums[j], e);
    if (weights != nullptr) hn::StoreU(hn::DemoteTo(df, e), df, weights + j * kLanes);
  }
}

// sum exp(x - max) over one chunk; weights as f32 relative to the chunk's maximum.
double ChunkSumImpl(const double* HWY_RESTRICT x, size_t n, double max,
                    float* HWY_RESTRICT weights) {
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
    std::copy(x + i, x + n, tail);
    AccumulateEight(tail, maxima, sums, tail_weights);
    if (weights != nullptr) std::copy(tail_weights, tail_weights + (n - i), weights + i);
  }
  alignas(64) double a[kAccumulators];
  for (size_t j = 0; j < kVectors; ++j) hn::Store(sums[j], d, a + j * kLanes);
  return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
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

void GumbelManyImpl(const NoiseKey& key, absl::Span<const TokenId> tokens, double* noise) {
  const F64 d;
  const U64 du;
  const PhiloxKeys keys = SpreadKey(key);
  const VF64 two52 = hn::Set(d, 4503599627370496.0);
  const VU64 low32 = hn::Set(du, 0xFFFFFFFFull);
  const VU64 one = hn::Set(du, 1);
  for (size_t i = 0; i < tokens.size(); i += kLanes) {
    alignas(64) uint64_t index[kLanes] = {};
    const size_t count = std::min(kLanes, tokens.size() - i);
    for (size_t j = 0; j < count; ++j) index[j] = static_cast<uint32_t>(tokens[i + j]);
    const VU64 v = hn::Load(du, index);
    const PhiloxWords words = PhiloxLanes(hn::ShiftRight<1>(v), keys);
    const auto even = hn::Eq(hn::And(v, one), hn::Zero(du));
    const VU64 high = hn::And(hn::IfThenElse(even, words.x0, words.x2), low32);
    const VU64 low = hn::And(hn::IfThenElse(even, words.x1, words.x3), low32);
    const VU64 n = hn::Or(hn::ShiftLeft<20>(high), hn::ShiftRight<12>(low));
    const VF64 number =
        hn::Sub(hn::BitCast(d, hn::Or(n, hn::Set(du, 0x4330000000000000ull))), two52);
    const VF64 u = hn::Mul(hn::Add(number, hn::Set(d, 0.5)), hn::Set(d, 0x1p-52));
    const VF64 g = hn::Neg(LogNormal(hn::Neg(LogNormal(u))));
    alignas(64) double out[kLanes];
    hn::Store(g, d, out);
    std::copy(out, out + count, noise + i);
  }
}

// Which tokens of kLanes Philox blocks, from token 2 * block on, a winner may be among: bit t is
// token 2 * block + t. Token v is out when (1 - u) 2^31 > weights[v] * factor, with 1 - u bounded
// from below by the complement of u's upper 32 bits.
HWY_INLINE uint32_t SurvivorBits(const PhiloxWords& words, const float* HWY_RESTRICT weights,
                                 float factor) {
#if HWY_TARGET == HWY_SCALAR
  uint32_t in = 0;
  const uint32_t high[2] = {static_cast<uint32_t>(words.x0.raw),
                            static_cast<uint32_t>(words.x2.raw)};
  for (int t = 0; t < 2; ++t) {
    const float distance = static_cast<float>(static_cast<int32_t>(~high[t] >> 1));
    in |= uint32_t{distance <= weights[t] * factor} << t;
  }
  return in;
#else
  const U64 du;
  const hn::Repartition<uint32_t, F64> d32;
  const hn::Repartition<int32_t, F64> di;
  const hn::Repartition<float, F64> df;
  const VU64 pair =
      hn::Or(hn::And(words.x0, hn::Set(du, 0xFFFFFFFFull)), hn::ShiftLeft<32>(words.x2));
  const auto complement = hn::ShiftRight<1>(hn::Not(hn::BitCast(d32, pair)));
  const auto distance = hn::ConvertTo(df, hn::BitCast(di, complement));
  const auto in = hn::Le(distance, hn::Mul(hn::LoadU(df, weights), hn::Set(df, factor)));
  if (HWY_LIKELY(hn::AllFalse(df, in))) return 0;
  uint8_t bits[8] = {};
  hn::StoreMaskBits(df, in, bits);
  return bits[0] | (uint32_t{bits[1]} << 8);
#endif
}

// The same for 2 * kLanes blocks: two independent chains keep the multipliers busy.
HWY_INLINE uint32_t SurvivorBitsOfTwo(size_t block, const float* HWY_RESTRICT weights, float factor,
                                      const PhiloxKeys& keys) {
  const U64 d;
  PhiloxWords a = FirstRound(hn::Iota(d, block), keys);
  PhiloxWords b = FirstRound(hn::Iota(d, block + kLanes), keys);
  for (int round = 1; round < 10; ++round) {
    NextRound(round, keys, &a);
    NextRound(round, keys, &b);
  }
  return SurvivorBits(a, weights, factor) |
         (SurvivorBits(b, weights + 2 * kLanes, factor) << (2 * kLanes));
}

NoisyWinner ArgmaxWithNoiseImpl(absl::Span<const double> x, const float* HWY_RESTRICT weights,
                                const LogSum& sum, const NoiseKey& key) {
  // The race: v beats a key K iff -log(u) < p(v) / exp(K), and -log(u) >= 1 - u. The most likely
  // token sets the first mark, so the factor never overflows: a Gumbel variable of 52 bits is at
  // least -log(52 log 2 + log 2).
  TokenId best = sum.argmax;
  const TokenId first = best;
  const auto key_of = [&](TokenId v) HWY_ATTR {
    return std::min(0.0, x[v] - sum.log) + Gumbel(key.seed, key.domain, key.hash, key.slot, v);
  };
  const auto factor_of = [&](double mark) HWY_ATTR {
    return static_cast<float>(0x1p31 * Exp(sum.max - sum.log - mark + kMarginCap) * (1 + 1e-5));
  };
  const PhiloxKeys keys = SpreadKey(key);
  double best_key = key_of(best);
  double second_key = -std::numeric_limits<double>::infinity();
  float factor = factor_of(best_key);
  for (size_t block = 0; 2 * block < x.size(); block += 2 * kLanes) {
    uint32_t bits = SurvivorBitsOfTwo(block, weights + 2 * block, factor, keys);
    for (; HWY_UNLIKELY(bits != 0); bits &= bits - 1) {
      const TokenId v = static_cast<TokenId>(2 * block + __builtin_ctz(bits));
      if (v == first || v >= static_cast<TokenId>(x.size())) continue;
      const double value = key_of(v);
      if (value > best_key || (value == best_key && v < best)) {
        second_key = best_key;
        best_key = value;
        best = v;
        factor = factor_of(best_key);
      } else if (value > second_key) {
        second_key = value;
      }
    }
  }
  return {best, std::min(best_key - second_key, kMarginCap)};
}

}  // namespace HWY_NAMESPACE
}  // namespace coppice
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice {

HWY_EXPORT(WidenRowImpl);
HWY_EXPORT(DivideRowImpl);
HWY_EXPORT(MaxImpl);
HWY_EXPORT(BlockMaximaImpl);
HWY_EXPORT(FloatBlockMaximaImpl);
HWY_EXPORT(ChunkSumImpl);
HWY_EXPORT(ScaleWeightsImpl);
HWY_EXPORT(GumbelManyImpl);
HWY_EXPORT(ArgmaxWithNoiseImpl);

void WidenRow(absl::Span<const float> logits, double* x) {
  HWY_DYNAMIC_DISPATCH(WidenRowImpl)(logits, x);
}

void DivideRow(double divisor, absl::Span<double> x) {
  HWY_DYNAMIC_DISPATCH(DivideRowImpl)(divisor, x.data(), x.size());
}

LogSum ChunkedLogSumExp(absl::Span<const double> x, float* weights) {
  const size_t n = x.size();
  double maxima[kLseChunks];
  double sums[kLseChunks];
  LogSum result{0, -std::numeric_limits<double>::infinity(),
                -std::numeric_limits<double>::infinity()};
  for (int c = 0; c < kLseChunks; ++c) {
    const size_t begin = c * n / kLseChunks;
    const size_t end = (c + 1) * n / kLseChunks;
    maxima[c] = HWY_DYNAMIC_DISPATCH(MaxImpl)(x.data() + begin, end - begin);
    result.max = std::max(result.max, maxima[c]);
    if (maxima[c] == -std::numeric_limits<double>::infinity()) {
      sums[c] = 0;
      if (weights != nullptr) std::fill(weights + begin, weights + end, 0.0f);
      continue;
    }
    sums[c] = HWY_DYNAMIC_DISPATCH(ChunkSumImpl)(x.data() + begin, end - begin, maxima[c],
                                                 weights == nullptr ? nullptr : weights + begin);
  }
  double total = 0;
  for (int c = 0; c < kLseChunks; ++c) {
    const double scale = sums[c] == 0 ? 0 : Exp(maxima[c] - result.max);
    total += sums[c] * scale;
    if (weights == nullptr) continue;
    const size_t begin = c * n / kLseChunks;
    HWY_DYNAMIC_DISPATCH(ScaleWeightsImpl)
    (static_cast<float>(scale), weights + begin, (c + 1) * n / kLseChunks - begin);
  }
  if (weights != nullptr) {
    std::fill(weights + n, weights + (n + kRowPadding - 1) / kRowPadding * kRowPadding, 0.0f);
  }
  if (total > 0) result.log = result.max + Log(total);
  for (int c = 0; c < kLseChunks; ++c) {
    if (maxima[c] != result.max || c * n / kLseChunks == (c + 1) * n / kLseChunks) continue;
    result.argmax = static_cast<TokenId>(
        std::find(x.begin() + c * n / kLseChunks, x.end(), result.max) - x.begin());
    break;
  }
  return result;
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

std::vector<TokenId> LargestLogits(absl::Span<const float> logits, size_t count) {
  std::vector<float> maxima((logits.size() + kMaxBlock - 1) / kMaxBlock);
  HWY_DYNAMIC_DISPATCH(FloatBlockMaximaImpl)(logits.data(), logits.size(), maxima.data());
  float threshold = std::numeric_limits<float>::lowest();
  if (count <= maxima.size()) {
    std::vector<float> sorted = maxima;
    std::nth_element(sorted.begin(), sorted.begin() + (count - 1), sorted.end(), std::greater<>());
    threshold = std::max(threshold, sorted[count - 1]);
  }
  std::vector<TokenId> tokens;
  for (size_t b = 0; b < maxima.size(); ++b) {
    if (maxima[b] < threshold) continue;
    const size_t end = std::min(logits.size(), (b + 1) * kMaxBlock);
    for (size_t v = b * kMaxBlock; v < end; ++v) {
      if (logits[v] >= threshold) tokens.push_back(static_cast<TokenId>(v));
    }
  }
  return tokens;
}

void GumbelMany(const NoiseKey& key, absl::Span<const TokenId> tokens, double* noise) {
  HWY_DYNAMIC_DISPATCH(GumbelManyImpl)(key, tokens, noise);
}

NoisyWinner ArgmaxWithNoise(absl::Span<const double> x, const float* weights, const LogSum& sum,
                            const NoiseKey& key) {
  return HWY_DYNAMIC_DISPATCH(ArgmaxWithNoiseImpl)(x, weights, sum, key);
}

}  // namespace coppice
#endif  // HWY_ONCE
