#include "catalogue/content_hash.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace coppice::catalogue {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read as they are in memory");

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87, kPrime2 = 0xC2B2AE3D27D4EB4F,
                   kPrime3 = 0x165667B19E3779F9, kPrime4 = 0x85EBCA77C2B2AE63,
                   kPrime5 = 0x27D4EB2F165667C5;

template <typename Word>
Word Load(const char* at) {
  Word word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

uint64_t Round(uint64_t lane, uint64_t word) {
  return std::rotl(lane + word * kPrime2, 31) * kPrime1;
}

uint64_t Merge(uint64_t hash, uint64_t lane) { return (hash ^ Round(0, lane)) * kPrime1 + kPrime4; }

}  // namespace

uint64_t Xxh64(absl::string_view bytes, uint64_t seed) {
  const char* at = bytes.data();
  const char* const end = at + bytes.size();
  uint64_t hash = seed + kPrime5;
  if (bytes.size() >= 32) {
    uint64_t lanes[] = {seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1};
    for (; end - at >= 32; at += 32) {
      for (int lane = 0; lane < 4; ++lane)
        lanes[lane] = Round(lanes[lane], Load<uint64_t>(at + 8 * lane));
    }
    hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) +
           std::rotl(lanes[3], 18);
    for (const uint64_t lane : lanes) hash = Merge(hash, lane);
  }
  hash += bytes.size();
  for (; end - at >= 8; at += 8)
    hash = std::rotl(hash ^ Round(0, Load<uint64_t>(at)), 27) * kPrime1 + kPrime4;
  if (end - at >= 4) {
    hash = std::rotl(hash ^ (Load<uint32_t>(at) * kPrime1), 23) * kPrime2 + kPrime3;
    at += 4;
  }
  for (; at < end; ++at)
    hash = std::rotl(hash ^ (static_cast<unsigned char>(*at) * kPrime5), 11) * kPrime1;
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

void ContentHash::Add(absl::string_view bytes) {
  while (pending_.size() + bytes.size() >= kBlock) {
    const size_t more = kBlock - pending_.size();
    if (pending_.empty()) {
      chain_ = Xxh64(bytes.substr(0, kBlock), chain_);
    } else {
      pending_.append(bytes.data(), more);
      chain_ = Xxh64(pending_, chain_);
      pending_.clear();
    }
    bytes.remove_prefix(more);
  }
  pending_.append(bytes.data(), bytes.size());
}

uint64_t ContentHash::Value() const { return Xxh64(pending_, chain_); }

}  // namespace coppice::catalogue
