#include "tokenizer/vocabulary.h"

namespace coppice::tokenizer {

std::bitset<256> OwnBytes(const Tokenizer& tokenizer) {
  std::bitset<256> own;
  for (TokenId token = 0; token < tokenizer.vocab_size(); ++token) {
    const std::string bytes = tokenizer.TokenBytes(token, /*skip_special=*/true);
    if (bytes.size() == 1) own.set(static_cast<unsigned char>(bytes[0]));
  }
  return own;
}

Vocabulary::Vocabulary(const Tokenizer& tokenizer)
    : begin_{0},
      leading_spaces_dropped_(tokenizer.LeadingSpacesDropped()),
      own_bytes_(OwnBytes(tokenizer)) {
  for (TokenId token = 0; token < tokenizer.vocab_size(); ++token) {
    bytes_ += tokenizer.TokenBytes(token, /*skip_special=*/false);
    begin_.push_back(bytes_.size());
    skipped_.push_back(tokenizer.TokenBytes(token, /*skip_special=*/true).empty());
  }
}

absl::string_view Vocabulary::Bytes(TokenId token, bool skip_special) const {
  if (token < 0 || token >= size() || (skip_special && skipped_[token])) return "";
  return absl::string_view(bytes_).substr(begin_[token], begin_[token + 1] - begin_[token]);
}

}  // namespace coppice::tokenizer
