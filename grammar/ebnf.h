// Grammars in the notation of GBNF. Pure.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grammar/expression.h"

namespace coppice::grammar {

// The rule `root` is the whole text. InvalidArgument names the line and what is not understood
// there.
absl::StatusOr<Grammar> ReadEbnf(absl::string_view text);

}  // namespace coppice::grammar
