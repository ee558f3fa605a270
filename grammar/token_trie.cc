#include "grammar/token_trie.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "grammar/expression.h"

namespace coppice::grammar {

TokenTrie::TokenTrie(std::shared_ptr<const tokenizer::Vocabulary> vocabulary)
    : vocabulary_(std::move(vocabulary)) {
  for (TokenId token = 0; token < vocabulary_->size(); ++token) {
    const absl::string_view name = vocabulary_->Bytes(token, /*skip_special=*/false);
    if (!name.empty() && vocabulary_->Bytes(token, /*skip_special=*/true).empty())
      special_[token] = absl::StrCat(absl::string_view(&kSpecialMark, 1), name);
  }
  std::vector<std::pair<absl::string_view, TokenId>> texts;
  for (TokenId token = 0; token < vocabulary_->size(); ++token) {
    if (!Bytes(token).empty()) texts.emplace_back(Bytes(token), token);
  }
  std::sort(texts.begin(), texts.end());
  std::vector<int32_t> open;  // nodes of the previous text
  absl::string_view before;
  const auto close = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back())
      nodes_[open.back()].end = static_cast<int32_t>(nodes_.size());
  };
  for (const auto& [text, token] : texts) {
    const auto differ = std::mismatch(text.begin(), text.end(), before.begin(), before.end());
    const size_t shared = differ.first - text.begin();
    close(shared);
    for (size_t at = shared; at < text.size(); ++at) {
      open.push_back(static_cast<int32_t>(nodes_.size()));
      nodes_.push_back({static_cast<uint8_t>(text[at]), static_cast<int32_t>(at) + 1, 0,
                        static_cast<int32_t>(tokens_.size())});
    }
    tokens_.push_back(token);
    deepest_ = std::max(deepest_, static_cast<int>(text.size()));
    before = text;
  }
  close(0);
  nodes_.push_back(
      {0, 0, static_cast<int32_t>(nodes_.size()) + 1, static_cast<int32_t>(tokens_.size())});
}

absl::string_view TokenTrie::Bytes(TokenId token) const {
  const absl::string_view text = vocabulary_->Bytes(token, /*skip_special=*/true);
  if (!text.empty()) return absl::StrContains(text, kSpecialMark) ? "" : text;
  const auto special = special_.find(token);
  return special == special_.end() ? absl::string_view() : absl::string_view(special->second);
}

}  // namespace coppice::grammar
