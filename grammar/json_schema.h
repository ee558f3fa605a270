// JSON schemas as grammars of the JSON texts that fulfil them. Pure.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grammar/expression.h"

namespace coppice::grammar {

// InvalidArgument names the place in the schema (as a JSON pointer) and what cannot be served there.
absl::StatusOr<Grammar> ReadJsonSchema(absl::string_view text);

}  // namespace coppice::grammar
