// Grammars in the notation of Lark: rules `name: alternatives`, terminals `NAME: ...`. Pure.
//
// Served: rules with ? and !, priorities .n, aliases -> name; "literals" and "literals"i with \n \t
// \r \f \\ \" \xHH \uHHHH \UHHHHHHHH, ranges "a".."z", /regular expressions/ (regex.h, without ^, $
// and look-ahead) with the flags i and s, ( ), [ ] for what may be left out, |, * + ?, ~ n, ~ n..m,
// comments from // or #, %import common.NAME [-> NAME], %import common (NAMES), %ignore. A rule goes
// on where the next line begins with |. Of llguidance: %llguidance {}, the attribute capture, which has
// no effect on texts, and %json with a schema, twice at most.
//
// The texts are those of the grammar without a lexer: a terminal need not be as long as it could.
// After each terminal of a rule one of the ignored ones may stand, once. A rule that begins with
// itself is read as a repetition.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grammar/expression.h"

namespace coppice::grammar {

// Whether a grammar is one of Lark: it begins with % or with a rule that has no ::=.
bool IsLark(absl::string_view text);

// The rule `start` is the whole text. InvalidArgument names the line and what is not understood, or
// the rule that is missing.
// *annotations as for ReadJsonSchema.
absl::StatusOr<Grammar> ReadLark(absl::string_view text,
                                 std::vector<std::string>* annotations = nullptr);

}  // namespace coppice::grammar
