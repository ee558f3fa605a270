// Sets of characters in patterns for Oniguruma: properties, escapes and classes, which may nest and
// intersect. Used by onig_pattern. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace coppice::tokenizer {

// Where a reader of a pattern is.
struct PatternText {
  absl::string_view text;
  size_t at = 0;

  bool Ends() const { return at >= text.size(); }
  bool Take(absl::string_view prefix) {
    if (text.substr(at, prefix.size()) != prefix) return false;
    at += prefix.size();
    return true;
  }
  absl::Status Error(absl::string_view what) const;  // names the place
};

// One character of PCRE2, written so that it means itself inside and outside of classes.
std::string PcreCharacter(uint32_t code_point);

// A set of characters: those of `inside`, the inside of a class of PCRE2, and of `beside`, each a
// pattern of PCRE2 for one character.
struct OnigSet {
  std::string inside;
  std::vector<std::string> beside;
  bool folds = true;  // without regard to case, both libraries see the same characters in it

  void Add(const OnigSet& other);
  std::string Pattern(bool negated) const;
};

// \d, \s, \w, \h in both cases, and \p{...}: `letter` is the one behind the backslash, which is
// already read. NotFound: it is none of them.
absl::StatusOr<OnigSet> ReadSetEscape(char letter, bool in_class, PatternText* pattern);
// The code point of an escape that stands for one character, as \n or \x{e9}. NotFound: it is none.
absl::StatusOr<uint32_t> ReadCharacterEscape(char letter, PatternText* pattern);
// The character there, which is not an escape.
uint32_t TakeCharacter(PatternText* pattern);
// A class behind its bracket, up to its end.
absl::StatusOr<OnigSet> ReadClass(PatternText* pattern, int depth);

}  // namespace coppice::tokenizer
