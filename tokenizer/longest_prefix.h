// The longest of many texts that is written at the start of a text, in a time that hardly depends
// on how many they are. Used by the SentencePiece tokenizer. Immutable after Add, then thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "base/types.h"

namespace coppice::tokenizer {

class LongestPrefix {
 public:
  struct Found {
    size_t length = 0;  // bytes; 0 = none
    TokenId id = -1;
  };

  // text: not empty, must outlive this.
  void Add(absl::string_view text, TokenId id) {
    ids_.emplace(text, id);
    std::vector<size_t>& lengths = lengths_[static_cast<uint8_t>(text[0])];
    const auto at = std::lower_bound(lengths.begin(), lengths.end(), text.size(), std::greater<>());
    if (at == lengths.end() || *at != text.size()) lengths.insert(at, text.size());
  }
  // Of those of at most `room` bytes. text: not empty.
  Found At(absl::string_view text, size_t room) const {
    for (const size_t length : lengths_[static_cast<uint8_t>(text[0])]) {
      if (length > room || length > text.size()) continue;
      const auto it = ids_.find(text.substr(0, length));
      if (it != ids_.end()) return {length, it->second};
    }
    return {};
  }

 private:
  absl::flat_hash_map<absl::string_view, TokenId> ids_;
  std::vector<size_t> lengths_[256];  // by first byte, longest first
};

}  // namespace coppice::tokenizer
