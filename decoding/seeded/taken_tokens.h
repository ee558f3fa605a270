// How often the groups of a diverse beam search have chosen each token in a layer
// (docs/algorithms.md 8.2). Used by verifier and drafter. A value.
#pragma once

#include <cstddef>

#include "absl/container/flat_hash_map.h"
#include "base/types.h"

namespace coppice::decoding {

class TakenTokens {
 public:
  void Add(TokenId token) { ++count_[token]; }
  int Count(TokenId token) const {
    const auto found = count_.find(token);
    return found == count_.end() ? 0 : found->second;
  }
  size_t distinct() const { return count_.size(); }

 private:
  absl::flat_hash_map<TokenId, int> count_;
};

}  // namespace coppice::decoding
