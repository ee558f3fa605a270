// "Did you mean": the known name that a mistyped one resembles. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace coppice {

// The name that is most like `name`, "" if none is alike or `name` is longer than 256 bytes.
std::string NearestName(absl::string_view name, const std::vector<std::string>& known);
// The same as the end of a message: ", did you mean a?", or "".
std::string DidYouMean(absl::string_view name, const std::vector<std::string>& known);

}  // namespace coppice
