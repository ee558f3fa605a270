// Regular expressions. The whole text must match. Pure.
//
// Served: literals, . (any character but \n), classes [a-z] [^a-z], \d \w \s \D \W \S (of ASCII),
// \p{..} \P{..} (unicode_property.h), \n \t \r \f \v \0 \xHH \x{H..} \uHHHH \u{H..}, escaped
// punctuation, groups ( ) (?: ) (?<name> ) (?P<name> ), |, * + ? {n} {n,} {n,m} {,m} and their lazy
// forms, which are the same texts, ^ and $ (the ends of the whole text), look-ahead (?= ) (?! ). A {
// that begins no count is itself.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grammar/expression.h"

namespace coppice::grammar {

// InvalidArgument names the place (in bytes, from 0) and the part that is not understood.
absl::StatusOr<Grammar> ReadRegex(absl::string_view text);

struct RegexUse {
  // The text only needs to contain a match: where an alternative has no ^ (no $), any characters
  // may stand before (after) it.
  bool search = false;
  // How the text writes one character of the ranges.
  Part (*character)(CodePoints ranges) = Character;
  bool any_case = false;   // ASCII letters stand for both of their cases
  bool dot_all = false;    // . is also \n
  bool conditions = true;  // false: ^, $ and look-ahead are refused
  // Steps that look-ahead, inner ^ and $ and large classes may take, less those that they took.
  // nullptr: as many as one expression may.
  int64_t* condition_work = nullptr;
};
absl::StatusOr<Grammar> RegexGrammar(absl::string_view text, const RegexUse& use);
// The same as one expression without rules, for expressions without look-ahead, inner ^ and $, and
// \p.
absl::StatusOr<Part> RegexPart(absl::string_view text, const RegexUse& use = {});

}  // namespace coppice::grammar
