// Which tokens would repeat an n-gram of prompt and path: no_repeat_ngram_size of docs/algorithms.md
// 1. Made once for a prompt. Immutable; any thread.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/types.h"

namespace coppice::sampling {

class RepeatedNgrams {
 public:
  // size: n, at least 1.
  RepeatedNgrams(absl::Span<const TokenId> prompt, int size);
  // Every token that, after prompt and path, would end an n-gram that they have already; ascending.
  std::vector<TokenId> After(absl::Span<const TokenId> path) const;

 private:
  TokenId At(size_t place, absl::Span<const TokenId> path) const {
    return place < prompt_.size() ? prompt_[place] : path[place - prompt_.size()];
  }

  size_t context_;  // tokens of an n-gram before its last
  std::vector<TokenId> prompt_;
  // The places of the prompt that have a whole context before them, by the hash of that context.
  std::vector<std::pair<uint64_t, uint32_t>> places_;
};

}  // namespace coppice::sampling
