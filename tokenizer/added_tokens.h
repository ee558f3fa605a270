// The added_tokens of a tokenizer.json: strings that become one token wherever they appear in a
// text, before any splitting or merging. The leftmost match wins; of those that start at one place,
// the longest. Immutable and thread-safe.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

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
  bool control = false;     // special, or one that the folder calls the begin or end of a text
  bool normalized = false;  // searched for in the normalized text
  bool strip_left = false, strip_right = false;  // includes the white space next to it
};

// The property White_Space of Unicode.
bool IsWhiteSpace(uint32_t code_point);

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
  bool strips() const;  // whether a token takes any amount of white space
  // The token with this content is a control token too.
  void SetControl(absl::string_view content);
  // Whether control tokens are searched for in the normalized text.
  bool normalizes_control() const;
  // Parts in text order, none empty, views into text. No control token contains a byte of
  // `literal`, which has ascending offsets.
  std::vector<Part> SplitRaw(absl::string_view text, absl::Span<const size_t> literal = {}) const {
    return Split(raw_, text, literal);
  }
  std::vector<Part> SplitNormalized(absl::string_view text,
                                    absl::Span<const size_t> literal = {}) const {
    return Split(normalized_, text, literal);
  }

 private:
  struct Needle {
    std::string text;
    int token = 0;  // index into tokens_
  };
  struct Matcher {
    std::vector<Needle> by_first_byte[256];  // in the order of their texts
  };
  static void AddNeedle(const std::string& text, int token, Matcher* matcher);
  std::vector<Part> Split(const Matcher& matcher, absl::string_view text,
                          absl::Span<const size_t> literal) const;
  // The longest token that is written at the start of the text; a control token only if it has at
  // most `room` bytes; nullptr if there is none. Its time hardly depends on how many tokens there
  // are.
  const Needle* FindAt(const Matcher& matcher, absl::string_view text, size_t room) const;

  std::vector<AddedToken> tokens_;
  Matcher raw_, normalized_;
};

}  // namespace coppice::tokenizer
