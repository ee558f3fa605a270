#include "sampling/gumbel_kernels.h"

#include <algorithm>
#include <limits>

#include "sampling/deterministic_math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sampling/gumbel_kernels.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace coppice::sampling {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F64 = hn::CappedTag<double, 8>;
using U64 = hn::RebindToUnsigned<F64>;
using VF64 = hn::Vec<F64>;
using VU64 = hn::Vec<U64>;

constexpr size_t kLanes = hn::MaxLanes(F64());
// log(x) for positive normal x, with the same operations as Log of sampling/deterministic_math.cc.
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

// Philox4x32-10 of one counter per 64-bit lane. Until the end, the upper half of every word is
// undefined.
struct PhiloxWords {
  VU64 x0, x1, x2, x3;
};

// The values that all counters of one draw share.
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
  // In the first round, the product of c2 is the same for all. Fold its words into c1 and the first
  // key.
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

// Gumbel variables, from the 52 bits in two words of each lane.
HWY_INLINE VF64 GumbelOfWords(VU64 first, VU64 second) {
  const F64 d;
  const U64 du;
  const VU64 low32 = hn::Set(du, 0xFFFFFFFFull);
  const VU64 n =
      hn::Or(hn::ShiftLeft<20>(hn::And(first, low32)), hn::ShiftRight<12>(hn::And(second, low32)));
  const VF64 number = hn::Sub(hn::BitCast(d, hn::Or(n, hn::Set(du, 0x4330000000000000ull))),
                              hn::Set(d, 4503599627370496.0));
  const VF64 u = hn::Mul(hn::Add(number, hn::Set(d, 0.5)), hn::Set(d, 0x1p-52));
  return hn::Neg(LogNormal(hn::Neg(LogNormal(u))));
}

// The noise of the tokens in `v`, from the words of their Philox blocks.
HWY_INLINE VF64 GumbelOfTokens(VU64 v, const PhiloxWords& words) {
  const U64 du;
  const auto even = hn::Eq(hn::And(v, hn::Set(du, 1)), hn::Zero(du));
  return GumbelOfWords(hn::IfThenElse(even, words.x0, words.x2),
                       hn::IfThenElse(even, words.x1, words.x3));
}

// Two vectors at a time, since independent chains keep the multipliers busy.
void GumbelManyImpl(const NoiseKey& key, absl::Span<const TokenId> tokens, double* noise) {
  const F64 d;
  const U64 du;
  const PhiloxKeys keys = SpreadKey(key);
  for (size_t i = 0; i < tokens.size(); i += 2 * kLanes) {
    alignas(64) uint64_t index[2 * kLanes] = {};
    const size_t count = std::min(2 * kLanes, tokens.size() - i);
    for (size_t j = 0; j < count; ++j) index[j] = static_cast<uint32_t>(tokens[i + j]);
    const VU64 v = hn::Load(du, index), w = hn::Load(du, index + kLanes);
    PhiloxWords a = FirstRound(hn::ShiftRight<1>(v), keys);
    PhiloxWords b = FirstRound(hn::ShiftRight<1>(w), keys);
    for (int round = 1; round < 10; ++round) {
      NextRound(round, keys, &a);
      NextRound(round, keys, &b);
    }
    alignas(64) double out[2 * kLanes];
    hn::Store(GumbelOfTokens(v, a), d, out);
    hn::Store(GumbelOfTokens(w, b), d, out + kLanes);
    std::copy(out, out + count, noise + i);
  }
}

// Counter (0, low and high word of the hash, domain and slot) in every lane.
HWY_INLINE PhiloxWords PhiloxOfHashes(VU64 hash, const PhiloxKeys& keys) {
  const U64 d;
  const VU64 product = MulLow32(hn::ShiftRight<32>(hash), hn::Set(d, 0xCD9E8D57u));
  PhiloxWords words = {hn::Xor(hn::Xor(hash, keys.k0[0]), hn::ShiftRight<32>(product)), product,
                       keys.k1[0], hn::Zero(d)};
  for (int round = 1; round < 10; ++round) NextRound(round, keys, &words);
  return words;
}

void GumbelOfHashesImpl(const NoiseKey& key, absl::Span<const uint64_t> hashes, double* noise) {
  const F64 d;
  const U64 du;
  const PhiloxKeys keys = SpreadKey({key.seed, key.domain, /*hash=*/0, key.slot});
  for (size_t i = 0; i < hashes.size(); i += kLanes) {
    alignas(64) uint64_t hash[kLanes] = {};
    const size_t count = std::min(kLanes, hashes.size() - i);
    std::copy(hashes.begin() + i, hashes.begin() + i + count, hash);
    const PhiloxWords words = PhiloxOfHashes(hn::Load(du, hash), keys);
    alignas(64) double out[kLanes];
    hn::Store(GumbelOfWords(words.x0, words.x1), d, out);
    std::copy(out, out + count, noise + i);
  }
}

// The tokens of kLanes Philox blocks, from token 2 * block on, that may win: bit t stands for token
// 2 * block + t. Token v cannot win if (1 - u) 2^31 > weights[v] * factor. The complement of u's
// upper 32 bits is a lower bound of 1 - u.
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

// The same for 2 * kLanes blocks: those of `block` and the next vector of them. Two
// independent chains keep the multipliers busy.
HWY_INLINE uint32_t SurvivorBitsOfTwo(VU64 block, const float* HWY_RESTRICT weights, float factor,
                                      const PhiloxKeys& keys) {
  const U64 d;
  PhiloxWords a = FirstRound(block, keys);
  PhiloxWords b = FirstRound(hn::Add(block, hn::Set(d, kLanes)), keys);
  for (int round = 1; round < 10; ++round) {
    NextRound(round, keys, &a);
    NextRound(round, keys, &b);
  }
  return SurvivorBits(a, weights, factor) |
         (SurvivorBits(b, weights + 2 * kLanes, factor) << (2 * kLanes));
}

NoisyWinner ArgmaxWithNoiseImpl(absl::Span<const double> x, const float* HWY_RESTRICT weights,
                                const LogSum& sum, const NoiseKey& key, TokenId first) {
  // The race: v beats a key K iff -log(u) < p(v) / exp(K), and -log(u) >= 1 - u. The first key to
  // beat is that of the most likely token. So the factor never overflows, because a Gumbel variable
  // of 52 bits is at least -log(52 log 2 + log 2).
  TokenId best = sum.argmax;
  const TokenId likeliest = best;
  const auto key_of = [&](TokenId v) HWY_ATTR {
    return std::min(0.0, x[v] - sum.log) +
           Gumbel(key.seed, key.domain, key.hash, key.slot, first + v);
  };
  const auto factor_of = [&](double mark) HWY_ATTR {
    return static_cast<float>(0x1p31 * Exp(sum.max - sum.log - mark + kMarginCap) * (1 + 1e-5));
  };
  const PhiloxKeys keys = SpreadKey(key);
  double best_key = key_of(best);
  double second_key = -std::numeric_limits<double>::infinity();
  float factor = factor_of(best_key);
  const U64 d;
  VU64 blocks = hn::Add(hn::Iota(d, 0), hn::Set(d, static_cast<uint64_t>(first) / 2));
  for (size_t block = 0; 2 * block < x.size(); block += 2 * kLanes) {
    uint32_t bits = SurvivorBitsOfTwo(blocks, weights + 2 * block, factor, keys);
    blocks = hn::Add(blocks, hn::Set(d, 2 * kLanes));
    for (; HWY_UNLIKELY(bits != 0); bits &= bits - 1) {
      const TokenId v = static_cast<TokenId>(2 * block + __builtin_ctz(bits));
      if (v == likeliest || v >= static_cast<TokenId>(x.size())) continue;
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
  return {first + best, std::min(best_key - second_key, kMarginCap)};
}

}  // namespace HWY_NAMESPACE
}  // namespace coppice::sampling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::sampling {

HWY_EXPORT(GumbelManyImpl);
HWY_EXPORT(GumbelOfHashesImpl);
HWY_EXPORT(ArgmaxWithNoiseImpl);

void GumbelMany(const NoiseKey& key, absl::Span<const TokenId> tokens, double* noise) {
  HWY_DYNAMIC_DISPATCH(GumbelManyImpl)(key, tokens, noise);
}

void GumbelOfHashes(const NoiseKey& key, absl::Span<const uint64_t> hashes, double* noise) {
  HWY_DYNAMIC_DISPATCH(GumbelOfHashesImpl)(key, hashes, noise);
}

NoisyWinner ArgmaxWithNoise(absl::Span<const double> x, const float* weights, const LogSum& sum,
                            const NoiseKey& key, TokenId first) {
  return HWY_DYNAMIC_DISPATCH(ArgmaxWithNoiseImpl)(x, weights, sum, key, first);
}

}  // namespace coppice::sampling
#endif  // HWY_ONCE
