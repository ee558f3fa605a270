// XXH64 (the xxHash specification, 64 bits), and a chain of it over blocks for contents that are
// read or written piece by piece. Finds damage and tells contents apart; not cryptographic. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace coppice::catalogue {

uint64_t Xxh64(absl::string_view bytes, uint64_t seed = 0);

// The same value however the bytes are divided among calls of Add.
class ContentHash {
 public:
  void Add(absl::string_view bytes);
  uint64_t Value() const;

 private:
  static constexpr size_t kBlock = 64 << 10;  // bytes that are hashed at once
  uint64_t chain_ = 0;
  std::string pending_;  // less than a block
};

}  // namespace coppice::catalogue
