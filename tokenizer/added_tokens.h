// The added_tokens of a tokenizer.json: strings that become one token wherever they appear in a
// text, before any splitting or merging. The leftmost match wins; of those that start at one place,
// the longest. Immutable and thread-safe.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
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
  // Parts in text order, none empty, views into text.
  std::vector<Part> SplitRaw(absl::string_view text) const { return Split(raw_, text); }
  std::vector<Part> SplitNormalized(absl::string_view text) const {
    return Split(normalized_, text);
  }

 private:
  struct Needle {
    std::string text;
    int token = 0;  // index into tokens_
  };
  struct Matcher {
    std::vector<Needle> by_first_byte[256];  // longest first
  };
  static void AddNeedle(const std::string& text, int token, Matcher* matcher);
  std::vector<Part> Split(const Matcher& matcher, absl::string_view text) const;

  std::vector<AddedToken> tokens_;
  Matcher raw_, normalized_;
};

}  // namespace coppice::tokenizer
