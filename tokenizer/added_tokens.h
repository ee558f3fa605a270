// The added_tokens of a tokenizer.json: strings that become one token wherever they appear in a
// text, before any splitting or merging. The leftmost match wins; of those that start at one place,
// the longest. Immutable and thread-safe.
#pragma once

#include <algorithm>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/types.h"
#include "tokenizer/normalizer.h"

namespace coppice::tokenizer {

struct AddedToken {
  TokenId id = -1;
  std::string content;
  std::string text;  // the text to search for: the content, normalized if `normalized`
  bool special = false;
  bool normalized = false;                       // searched for in the normalized text
  bool strip_left = false, strip_right = false;  // includes the white space next to it
};

class AddedTokens {
 public:
  // A part of a text: a token, or text between tokens (id -1).
  struct Part {
    absl::string_view text;
    TokenId id = -1;
  };

  // json: null or the list. Errors name the token.
  static absl::StatusOr<AddedTokens> FromJson(const nlohmann::json& json,
                                              const Normalizer& normalizer);

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  // Parts in text order, none empty, views into text. No special token begins at an offset of
  // `literal`, which is ascending.
  std::vector<Part> SplitRaw(absl::string_view text, absl::Span<const size_t> literal = {}) const {
    return Split(raw_, text, [literal](size_t at) {
      return std::binary_search(literal.begin(), literal.end(), at);
    });
  }
  std::vector<Part> SplitNormalized(absl::string_view text, bool with_special = true) const {
    return Split(normalized_, text, [with_special](size_t) { return !with_special; });
  }
  // Where special tokens are written in the text, ascending.
  std::vector<size_t> FindSpecial(absl::string_view text) const;

 private:
  struct Needle {
    std::string text;
    int token = 0;  // index into tokens_
  };
  struct Matcher {
    std::vector<Needle> by_first_byte[256];  // in the order of their texts
  };
  static void AddNeedle(const std::string& text, int token, Matcher* matcher);
  // without_special: whether no special token may begin at an offset.
  std::vector<Part> Split(const Matcher& matcher, absl::string_view text,
                          const std::function<bool(size_t)>& without_special) const;
  // The longest token that is written at the start of the text and counts; nullptr if there is
  // none. Its time hardly depends on how many tokens there are.
  const Needle* FindAt(const Matcher& matcher, absl::string_view text,
                       absl::FunctionRef<bool(const AddedToken&)> counts) const;

  std::vector<AddedToken> tokens_;
  Matcher raw_, normalized_;
};

}  // namespace coppice::tokenizer
