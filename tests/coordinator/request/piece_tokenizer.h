// A tokenizer that is only a list of byte pieces: the text of any token may end inside a character.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace coppice::coordinator {

class PieceTokenizer : public tokenizer::Tokenizer {
 public:
  // The first num_special pieces are special. spaces: LeadingSpacesDropped.
  PieceTokenizer(std::vector<std::string> pieces, int num_special, int spaces)
      : pieces_(std::move(pieces)), num_special_(num_special), spaces_(spaces) {}
  int vocab_size() const override { return static_cast<int>(pieces_.size()); }
  TokenId bos_id() const override { return -1; }
  std::vector<TokenId> eos_ids() const override { return {}; }
  bool IsSpecial(TokenId id) const override { return id < num_special_; }
  std::vector<TokenId> Encode(absl::string_view, bool) const override { return {}; }
  std::vector<TokenId> EncodeChat(absl::string_view, absl::Span<const size_t>,
                                  bool) const override {
    return {};
  }
  std::vector<size_t> FindSpecial(absl::string_view) const override { return {}; }
  std::string TokenBytes(TokenId id, bool skip_special) const override {
    if (id < 0 || id >= vocab_size() || (skip_special && IsSpecial(id))) return "";
    return pieces_[id];
  }
  int LeadingSpacesDropped() const override { return spaces_; }

 private:
  const std::vector<std::string> pieces_;
  const int num_special_;
  const int spaces_;
};

}  // namespace coppice::coordinator
