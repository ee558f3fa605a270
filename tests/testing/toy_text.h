// Texts for the tokens of a test model, with stop strings that such texts complete inside of tokens
// and across them. Plain ASCII, so that a search in the joined texts is a reference for
// tokenizer/stop_strings. Used by tests/decoding and tests/coordinator.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "decoding/params.h"
#include "tokenizer/stop_strings.h"

namespace coppice::test {

inline std::string ToyToken(TokenId token) {
  static const std::string texts[] = {"a",  "b",   "ab", "ba", "aab", "c",  "bc", " a",
                                      "cb", "abc", "",   "bb", "a ",  "ca", "b b"};
  return texts[token % 15];
}

// Whether a stop string is completed in the text of the tokens from min_tokens on.
inline bool ToyTextEnds(const decoding::DecodingParams& params, absl::Span<const TokenId> path) {
  std::string text;
  for (size_t i = std::max(0, params.min_tokens - 1); i < path.size(); ++i)
    text += ToyToken(path[i]);
  return std::any_of(params.stop_strings.begin(), params.stop_strings.end(),
                     [&](const std::string& stop) { return text.find(stop) != std::string::npos; });
}

class ToyTokenizer : public tokenizer::Tokenizer {
 public:
  explicit ToyTokenizer(int vocab) : vocab_(vocab) {}
  int vocab_size() const override { return vocab_; }
  TokenId bos_id() const override { return -1; }
  std::vector<TokenId> eos_ids() const override { return {}; }
  bool IsSpecial(TokenId) const override { return false; }
  std::vector<TokenId> Encode(absl::string_view, bool) const override { return {}; }
  std::vector<TokenId> EncodeChat(absl::string_view, absl::Span<const size_t>,
                                  bool) const override {
    return {};
  }
  std::vector<size_t> FindSpecial(absl::string_view) const override { return {}; }
  std::string TokenBytes(TokenId id, bool) const override { return ToyToken(id); }

 private:
  const int vocab_;
};

inline void SetToyStops(std::vector<std::string> stops, int vocab,
                        decoding::DecodingParams* params) {
  params->stop_strings = std::move(stops);
  params->stop_text = std::make_shared<tokenizer::StopStrings>(
      std::make_shared<tokenizer::Vocabulary>(ToyTokenizer(vocab)), params->stop_strings,
      /*skip_special=*/true, absl::Span<const TokenId>());
}

// One of some lists; some of their strings end early, some late.
inline std::vector<std::string> ToyStops(int choice) {
  static const std::vector<std::string> lists[] = {
      {"aa"}, {"abab"}, {"ba", "cb"}, {"aab", "bbb", "c"}, {"bab", "ab a"}, {"b"}};
  return lists[choice % 6];
}

}  // namespace coppice::test
