// Gumbel noise in f32 and path hashes (docs/algorithms.md 2), for .cu files and their tests. Only
// IEEE additions, products and fused multiply-adds: the bits are the same on every device and on
// the host, so how far they are from the noise in f64 is measured on the host. Pure functions.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/device.h"

namespace coppice::kernels::cuda {

// x = 2^exponent (1 + fraction), fraction in [sqrt(1/2) - 1, sqrt(2) - 1).
struct SplitFloat {
  float fraction, exponent;
};

// x positive and normal.
DEV_FUNCTION SplitFloat Split(float x) {
  constexpr uint32_t kRootHalf = 0x3f3504f3;  // sqrt(1/2)
  const uint32_t bits = __float_as_uint(x);
  const int32_t exponent = static_cast<int32_t>(bits - kRootHalf) >> 23;
  const float m = __uint_as_float(bits - (static_cast<uint32_t>(exponent) << 23));
  return {dev::AddRn(m, -1.0f), static_cast<float>(exponent)};  // exact
}

// log(x) = exponent ln 2 + f - f^2 / 2 + f^3 q(f): q is a minimax fit of degree 7, relative to
// log(1 + f) within 6e-9.
DEV_FUNCTION float LogOf(SplitFloat x) {
  const float f = x.fraction;
  float q = -0.07634424418210983f;
  q = fmaf(q, f, 0.12761546671390533f);
  q = fmaf(q, f, -0.1316019594669342f);
  q = fmaf(q, f, 0.14201763272285461f);
  q = fmaf(q, f, -0.16623356938362122f);
  q = fmaf(q, f, 0.20001226663589478f);
  q = fmaf(q, f, -0.250008225440979f);
  q = fmaf(q, f, 0.3333333134651184f);
  const float rest = fmaf(q, f, -0.5f);
  return fmaf(x.exponent, 0.69314718f, fmaf(dev::MulRn(f, f), rest, f));
}

// -log(-log(u)) of the 52 bits in two words, u = (n + 1/2) 2^-52. Above 1/2 it starts from 1 - u,
// which is exact, so that u near 1 loses nothing.
DEV_FUNCTION float GumbelOfWords(uint32_t first, uint32_t second) {
  constexpr float kNear = 0.29289322f;  // 1 - sqrt(1/2)
  const bool upper = first >> 31 != 0;
  const uint32_t flip = upper ? 0xffffffffu : 0u;
  const uint64_t n = uint64_t{first ^ flip} << 20 | (second ^ flip) >> 12;
  const float v = dev::MulRn(static_cast<float>(2 * n + 1), 0x1p-53f);  // u or 1 - u, at most 1/2
  SplitFloat u = Split(v);
  if (upper) {
    u.fraction = v < kNear ? -v : fmaf(-2.0f, v, 1.0f);
    u.exponent = v < kNear ? 0.0f : -1.0f;
  }
  return -LogOf(Split(-LogOf(u)));
}

// Bounds of GumbelOfWords(first, second) for every second word, without a logarithm, by rest =
// ~first: 1 - u is at least rest 2^-32, and -log(u) at least 1 - u. The bits of a float, as a
// number, are 2^23 times a bound from below of its base-2 logarithm, off by at most 0.0861. Checked
// for all words: lab/measurements/2026-11-29-cuda-lists.md.

// No noise is larger. Above 0.
DEV_FUNCTION float NoiseAbove(uint32_t rest) {
  constexpr float kAtZero = 110.2105f;  // 159 ln 2, and 1e-4 for all roundings
  const uint32_t bits = __float_as_uint(static_cast<float>(rest));
  return fmaf(static_cast<float>(static_cast<int32_t>(bits)), -0x1.62e42ep-24f, kAtZero);
}
// Where it is: the noise is at least NoiseAbove(rest) - kNoiseGap. That u is at least 3/4, and not
// so near 1 that the second word counts.
DEV_FUNCTION bool IsNoiseNear(uint32_t rest) { return rest - 0x1000u < 0x3ffff000u; }
inline constexpr float kNoiseGap = 0.165f;

struct PhiloxWords {
  uint32_t x[4];
};

// Philox4x32-10.
DEV_FUNCTION PhiloxWords PhiloxOf(PhiloxWords counter, uint32_t key0, uint32_t key1) {
  uint32_t c0 = counter.x[0], c1 = counter.x[1], c2 = counter.x[2], c3 = counter.x[3];
  DEV_UNROLL
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = dev::MulWide(c0, 0xD2511F53u);
    const uint64_t b = dev::MulWide(c2, 0xCD9E8D57u);
    c0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ key0;
    c1 = static_cast<uint32_t>(b);
    c2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ key1;
    c3 = static_cast<uint32_t>(a);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// The words of an even token's noise and of the next token's, two each, for either token.
DEV_FUNCTION PhiloxWords TokenWords(uint64_t seed, uint64_t path_hash, uint32_t slot,
                                    uint32_t token) {
  constexpr uint32_t kTokenDomain = 1;  // Domain::kToken of sampling/rng.h
  return PhiloxOf({{token >> 1, static_cast<uint32_t>(path_hash),
                    static_cast<uint32_t>(path_hash >> 32), kTokenDomain << 24 | slot}},
                  static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
}

// Noise of a token and of the next, for an even token.
struct NoisePair {
  float even, odd;
};
DEV_FUNCTION NoisePair TokenNoise(uint64_t seed, uint64_t path_hash, uint32_t slot,
                                  uint32_t token) {
  const PhiloxWords words = TokenWords(seed, path_hash, slot, token);
  return {GumbelOfWords(words.x[0], words.x[1]), GumbelOfWords(words.x[2], words.x[3])};
}

// Noise by which a slot picks its parent: Domain::kParent of sampling/rng.h, index 0.
DEV_FUNCTION float PickNoise(uint64_t seed, uint64_t path_hash, uint32_t slot) {
  constexpr uint32_t kParentDomain = 2;
  const PhiloxWords words =
      PhiloxOf({{0, static_cast<uint32_t>(path_hash), static_cast<uint32_t>(path_hash >> 32),
                 kParentDomain << 24 | slot}},
               static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  return GumbelOfWords(words.x[0], words.x[1]);
}

// H(path + token), as ExtendHash of sampling/rng.h.
DEV_FUNCTION uint64_t PathHash(uint64_t parent, int32_t token) {
  uint64_t z = parent + 0x9E3779B97F4A7C15ull * (uint64_t{static_cast<uint32_t>(token)} + 1);
  z ^= z >> 30;
  z *= 0xbf58476d1ce4e5b9ull;
  z ^= z >> 27;
  z *= 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

}  // namespace coppice::kernels::cuda
