// Finds where the last tokens of a text occur in a fixed corpus, for drafts without a draft model: a
// suffix array, 8 bytes a token. Made at start by the worker, then read by the suffix drafter.
// Immutable, so any thread may read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "base/types.h"

namespace coppice::decoding {

class SuffixCorpus {
 public:
  static constexpr TokenId kEnd = -1;      // the token after each document
  static constexpr int kShortest = 2;      // tokens of the shortest match
  static constexpr int kLongest = 16;      // a longer match counts as one of this length
  static constexpr int kMostMatches = 64;  // evenly among all

  // Bytes that a corpus of so many tokens takes, with one kEnd for each document.
  static constexpr size_t BytesFor(size_t tokens) {
    return tokens * (sizeof(TokenId) + sizeof(int32_t));
  }
  // tokens: documents, each with kEnd behind it; less than 2^31. n log n comparisons; on_progress,
  // if there is one, is called every 2^20 of them.
  explicit SuffixCorpus(std::vector<TokenId> tokens,
                        const std::function<void()>& on_progress = nullptr);

  struct Matches {
    int length = 0;               // tokens of the longest match, at most kLongest; 0: none
    std::vector<int32_t> places;  // of its last token
  };
  // The longest matches of the end of `text`.
  Matches Find(absl::Span<const TokenId> text) const;
  // The token after a place, kEnd at the end of its document.
  TokenId After(int32_t place) const { return tokens_[place + 1]; }
  size_t size() const { return tokens_.size(); }
  size_t bytes() const { return BytesFor(tokens_.size()); }

 private:
  // Negative, 0 or positive, as the first tokens at `place` compare with `pattern`.
  int Compare(int32_t place, absl::Span<const TokenId> pattern) const;
  // The places at which the pattern begins, as a range of order_.
  struct Range {
    size_t begin, end;
  };
  Range Where(absl::Span<const TokenId> pattern) const;

  const std::vector<TokenId> tokens_;
  std::vector<int32_t> order_;  // places by the kLongest tokens from there on, then by place
};

}  // namespace coppice::decoding
