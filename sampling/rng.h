// Counter-based random numbers (docs/algorithms.md 2). Every draw is a pure function of the
// request's seed and of what is decided. Philox4x32-10, path hashes, uniforms of 52 bits, Gumbel
// noise.
#pragma once

#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "base/types.h"

namespace coppice::sampling {

enum class Domain : uint32_t {
  kToken = 1,
  kParent = 2,
  kDraft = 3,
  kAccept = 4,
  kResidual = 5,
  kDirect = 6
};

inline constexpr uint64_t kRootHash = 0x9E3779B97F4A7C15ull;

// fin(z) of docs/algorithms.md 2.
constexpr uint64_t Finalize(uint64_t z) {
  z ^= z >> 30;
  z *= 0xbf58476d1ce4e5b9ull;
  z ^= z >> 27;
  z *= 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// H(path + t).
constexpr uint64_t ExtendHash(uint64_t parent, TokenId token) {
  return Finalize(parent + kRootHash * (static_cast<uint64_t>(static_cast<uint32_t>(token)) + 1));
}
uint64_t HashPath(absl::Span<const TokenId> path);

// h' of docs/algorithms.md 2: the hash that rejection verifiers use in a round that starts after
// `epoch` committed layers.
constexpr uint64_t EpochHash(uint64_t hash, uint64_t epoch) {
  return Finalize(hash + kRootHash * (epoch + 1));
}

// Philox4x32-10 with the standard constants.
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Uniform in (0, 1), never 0 or 1. slot < 2^24.
double Uniform(uint64_t seed, Domain domain, uint64_t hash, uint32_t slot, uint32_t index);
// -log(-log(u)).
double Gumbel(uint64_t seed, Domain domain, uint64_t hash, uint32_t slot, uint32_t index);

}  // namespace coppice::sampling
