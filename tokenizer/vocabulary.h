// The bytes of the tokens, for code that reads texts token by token: stop strings here, formats in
// grammar/. Nodes load it from the folder of their model.
#pragma once

#include <bitset>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/types.h"
#include "tokenizer/tokenizer.h"

namespace coppice::tokenizer {

// The bytes that are the whole text of a token which is not special. With all of them a vocabulary
// can write every text. Reads every token.
std::bitset<256> OwnBytes(const Tokenizer& tokenizer);

// Immutable; any thread.
class Vocabulary {
 public:
  explicit Vocabulary(const Tokenizer& tokenizer);
  // The vocabulary of the tokenizer in a model's folder.
  static absl::StatusOr<std::shared_ptr<const Vocabulary>> Load(const std::string& folder);
  // As Tokenizer::TokenBytes.
  absl::string_view Bytes(TokenId token, bool skip_special) const;
  const std::bitset<256>& own_bytes() const { return own_bytes_; }
  int size() const { return static_cast<int>(skipped_.size()); }
  int leading_spaces_dropped() const { return leading_spaces_dropped_; }

 private:
  std::string bytes_;
  std::vector<size_t> begin_;  // [size + 1]
  std::vector<bool> skipped_;  // [size] has no text when special tokens are skipped
  int leading_spaces_dropped_;
  std::bitset<256> own_bytes_;
};

}  // namespace coppice::tokenizer
