// Grammars in the notation of GBNF: rules `name ::= alternatives`. Pure.
//
// Served: "literals" with \n \t \r \\ \" \xHH \uHHHH \UHHHHHHHH (each one character), classes [a-z]
// [^a-z] with the same escapes and \] \[ \- \^, . (any character), names of rules, ( ), |,
// * + ? {n} {n,} {n,m}, and comments from # to the end of the line. A rule ends with its line, but
// not inside of ( ), after ::= or |, or where the next line begins with |.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grammar/expression.h"

namespace coppice::grammar {

// The rule `root` is the whole text. InvalidArgument names the line and the part that is not
// understood, or the rule that is missing.
absl::StatusOr<Grammar> ReadEbnf(absl::string_view text);

}  // namespace coppice::grammar
