// The patterns of tokenizer.json files are written for Oniguruma with the syntax of Ruby. They are
// translated for PCRE2, which reads some of them differently: ^ and $ are those of lines, classes
// nest, \h is a digit, a{2}+ is not possessive. Used by Regex at start-up. Pure.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace coppice::tokenizer {

// The pattern in the syntax of PCRE2 with the options UTF and UCP. InvalidArgument: "at byte N: "
// and what is not served.
absl::StatusOr<std::string> PcreOfOnig(absl::string_view pattern);

}  // namespace coppice::tokenizer
