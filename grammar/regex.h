// Regular expressions. The whole text must match. Pure.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grammar/expression.h"

namespace coppice::grammar {

// InvalidArgument names the place (in bytes, from 0) and what is not understood there.
absl::StatusOr<Grammar> ReadRegex(absl::string_view text);
// The same as one expression without rules, for a regular expression inside of something else.
absl::StatusOr<Part> RegexPart(absl::string_view text);

}  // namespace coppice::grammar
