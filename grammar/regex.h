// Regular expressions. The whole text must match. Pure.
//
// Served: literals, . (any character but \n), classes [a-z] [^a-z], \d \w \s \D \W \S (of ASCII),
// \n \t \r \f \v \0 \xHH \x{H..} \uHHHH \u{H..}, escaped punctuation, groups ( ) (?: ) (?<name> )
// (?P<name> ), |, * + ? {n} {n,} {n,m} {,m} and their lazy forms, which are the same texts. A {
// that begins no count is itself. ^ and $ stand at the ends of the expression or of an alternative
// of it.
#pragma once

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
};
// The same as one expression without rules, for a regular expression inside another text.
absl::StatusOr<Part> RegexPart(absl::string_view text, const RegexUse& use = {});

}  // namespace coppice::grammar
