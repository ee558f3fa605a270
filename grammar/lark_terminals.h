// The terminals that a Lark grammar may import from `common`. Pure.
#pragma once

#include "absl/strings/string_view.h"

namespace coppice::grammar {

// The regular expression of a terminal; "": there is no such terminal.
absl::string_view CommonTerminal(absl::string_view name);

}  // namespace coppice::grammar
