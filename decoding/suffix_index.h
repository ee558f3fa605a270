// Finds where the last tokens of a text occurred before in the same request: in its prompt, in its
// answer and in its other beams. What followed there is a draft without a draft model. A trie of
// tokens with hash chains of its pairs and of its runs of five, as in LZ77; 32 to 64 bytes a token.
// Called by the suffix drafter and the worker. Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/types.h"
#include "decoding/path_tree.h"

namespace coppice::decoding {

class SuffixIndex {
 public:
  static constexpr int kShortest = 2;      // tokens of the shortest match
  static constexpr int kLongest = 32;      // a longer match counts as one of this length
  static constexpr int kMostMatches = 64;  // the latest ones
  static constexpr int kMostTokens = 1 << 18;

  // Indexes the prompt, of a long one the last `most_tokens` / 2 tokens. prompt: not empty.
  explicit SuffixIndex(absl::Span<const TokenId> prompt, int most_tokens = kMostTokens);

  // Adds the paths that are new since the last call, until there are most_tokens tokens. Always the
  // same tree.
  void Add(const PathTree& paths);

  struct Match {
    int32_t node = 0;  // the last token of the earlier occurrence
    int length = 0;    // how many tokens up to it are those of the text, kShortest to kLongest
  };
  // Earlier occurrences of the end of `text` that something follows, latest first: if some have at
  // least five tokens, only such.
  std::vector<Match> Find(absl::Span<const TokenId> text) const;

  // The tokens that follow a node: FirstChild, then NextChild of each until -1.
  int32_t FirstChild(int32_t node) const { return nodes_[node].child; }
  int32_t NextChild(int32_t child) const { return nodes_[child].sibling; }
  TokenId token(int32_t node) const { return nodes_[node].token; }
  bool InPrompt(int32_t node) const { return node <= root_; }
  // The last token of a path; -1: it is not in the index.
  int32_t NodeOf(PathId path) const {
    const int32_t node = root_ + Index(path);
    return node < size() ? node : -1;
  }
  int32_t size() const { return static_cast<int32_t>(nodes_.size()); }
  size_t bytes() const;

 private:
  static constexpr int kOrders = 2;
  static constexpr int kTokensOf[kOrders] = {5, kShortest};
  struct Node {
    TokenId token;
    int32_t parent;
    int32_t child = -1, sibling = -1;
    int32_t before[kOrders] = {-1, -1};  // the node before it in its chain
  };

  void Append(TokenId token, int32_t parent);
  void Chain(int32_t node, int order);
  // A slot of heads_[order] for the last tokens up to `node`; -1: there are not so many.
  int64_t SlotOf(int32_t node, int order) const;
  int64_t SlotOf(absl::Span<const TokenId> text, int order) const;
  void Rehash();

  const int most_tokens_;
  int32_t root_ = -1;  // the last token of the prompt
  std::vector<Node> nodes_;
  // [order][slots] The last node of the chain; -1: empty. Slots are shared by chance, so tokens are
  // compared.
  std::vector<int32_t> heads_[kOrders];
};

}  // namespace coppice::decoding
