// A tokenizer whose ids are the bytes of the text. Id 256 is EOS (special), 257 is BOS.
#pragma once

#include <algorithm>

#include "tokenizer/tokenizer.h"

namespace coppice::coordinator {

class ByteTokenizer : public tokenizer::Tokenizer {
 public:
  static constexpr TokenId kEos = 256, kBos = 257;
  int vocab_size() const override { return 258; }
  TokenId bos_id() const override { return kBos; }
  std::vector<TokenId> eos_ids() const override { return {kEos}; }
  bool IsSpecial(TokenId id) const override { return id >= kEos; }
  std::vector<TokenId> Encode(absl::string_view text, bool add_special_tokens) const override {
    std::vector<TokenId> ids;
    if (add_special_tokens) ids.push_back(kBos);
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::vector<TokenId> EncodeChat(absl::string_view text, absl::Span<const size_t> literal,
                                  bool add_special_tokens) const override {
    std::vector<TokenId> ids;
    if (add_special_tokens) ids.push_back(kBos);
    for (size_t at = 0; at < text.size();) {
      const auto next = std::lower_bound(literal.begin(), literal.end(), at);
      const TokenId special =
          SpecialAt(next == literal.end() ? text.substr(at) : text.substr(at, *next - at));
      ids.push_back(special >= 0 ? special : static_cast<unsigned char>(text[at]));
      at += special >= 0 ? TokenBytes(special, false).size() : 1;
    }
    return ids;
  }
  size_t FewestTokens(absl::string_view text) const override {
    return (text.size() + 3) / 4;  // 4: of "</s>"
  }
  std::vector<size_t> FindSpecial(absl::string_view text) const override {
    std::vector<size_t> found;
    for (size_t at = 0; at < text.size(); ++at) {
      if (SpecialAt(text.substr(at)) >= 0) found.push_back(at);
    }
    return found;
  }
  std::string TokenBytes(TokenId id, bool skip_special) const override {
    if (IsSpecial(id)) return skip_special ? "" : id == kEos ? "</s>" : "<s>";
    return std::string(1, static_cast<char>(id));
  }
  std::string Decode(absl::Span<const TokenId> ids, bool skip_special) const override {
    std::string text;
    for (const TokenId id : ids) text += TokenBytes(id, skip_special);
    return text;
  }

 private:
  TokenId SpecialAt(absl::string_view text) const {
    for (const TokenId id : {kEos, kBos}) {
      const std::string special = TokenBytes(id, false);
      if (text.substr(0, special.size()) == special) return id;
    }
    return -1;
  }
};

// The ids of a text, followed by EOS if `eos` is set.
inline std::vector<TokenId> Bytes(absl::string_view text, bool eos = false) {
  std::vector<TokenId> ids = ByteTokenizer().Encode(text, false);
  if (eos) ids.push_back(ByteTokenizer::kEos);
  return ids;
}

}  // namespace coppice::coordinator
