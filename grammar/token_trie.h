// The tokens of a vocabulary by their bytes, as a trie in the order of a walk, so that one jump
// skips a branch. Immutable; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/types.h"
#include "tokenizer/vocabulary.h"

namespace coppice::grammar {

class TokenTrie {
 public:
  struct Node {
    uint8_t byte;
    int32_t depth;        // bytes of its text; the first node of a text has 1
    int32_t end;          // the first node that is not below it
    int32_t first_token;  // its tokens are tokens()[first_token, first_token of the next node)
  };

  // The text of a special token is kSpecialMark and its name. Tokens without text are left out, and
  // ordinary ones that have this byte, which no UTF-8 text has.
  explicit TokenTrie(std::shared_ptr<const tokenizer::Vocabulary> vocabulary);

  // In the order of a walk, followed by one node that marks the end.
  absl::Span<const Node> nodes() const { return nodes_; }
  absl::Span<const TokenId> tokens() const { return tokens_; }
  int deepest() const { return deepest_; }
  int vocab_size() const { return vocabulary_->size(); }
  absl::string_view Bytes(TokenId token) const;  // "": it is left out

 private:
  std::shared_ptr<const tokenizer::Vocabulary> vocabulary_;
  absl::flat_hash_map<TokenId, std::string> special_;  // texts of special tokens
  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;
  int deepest_ = 0;
};

}  // namespace coppice::grammar
