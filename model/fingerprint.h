// A 64-bit hash of a model's files, the same on every machine. Ranks and replicas compare it, to
// know that they serve the same checkpoint. Not cryptographic.
#pragma once

#include <cstdint>
#include <string_view>

namespace coppice::model {

class Fingerprint {
 public:
  // Adding "ab" then "c" differs from adding "a" then "bc".
  void Add(std::string_view bytes);
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0;
};

}  // namespace coppice::model
