#include "sampling/rng.h"

#include "sampling/deterministic_math.h"

namespace coppice::sampling {

uint64_t HashPath(absl::Span<const TokenId> path) {
  uint64_t hash = kRootHash;
  for (TokenId token : path) hash = ExtendHash(hash, token);
  return hash;
}

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * c[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return c;
}

double Uniform(uint64_t seed, Domain domain, uint64_t hash, uint32_t slot, uint32_t index) {
  const auto x = Philox({index >> 1, static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32),
                         (static_cast<uint32_t>(domain) << 24) | slot},
                        {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t high = index % 2 == 0 ? x[0] : x[2];
  const uint64_t low = index % 2 == 0 ? x[1] : x[3];
  const uint64_t n = (high << 20) | (low >> 12);
  return (static_cast<double>(n) + 0.5) * 0x1p-52;
}

double Gumbel(uint64_t seed, Domain domain, uint64_t hash, uint32_t slot, uint32_t index) {
  return -Log(-Log(Uniform(seed, domain, hash, slot, index)));
}

}  // namespace coppice::sampling
