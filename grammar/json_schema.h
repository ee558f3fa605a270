// JSON schemas as grammars of JSON texts that are valid for them. Every text of the grammar is
// valid, but the grammar does not have every valid text: members have the order of "properties",
// white space and numbers are bounded (json_rules.h), and where "type" is absent the keywords tell
// which types are meant. Anything not served is an error, and no keyword is dropped silently except
// those that only describe. Pure.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grammar/expression.h"

namespace coppice::grammar {

// InvalidArgument names the place in the schema (as a JSON pointer) and what cannot be served
// there.
absl::StatusOr<Grammar> ReadJsonSchema(absl::string_view text);

}  // namespace coppice::grammar
