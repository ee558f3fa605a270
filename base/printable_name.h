// A name that another process or a user gave, as errors and log lines show it: it may contain
// anything.
#pragma once

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"

namespace coppice {

// Escaped; at most 64 bytes.
inline std::string PrintableName(absl::string_view name) {
  return absl::CHexEscape(name.substr(0, 64));
}

}  // namespace coppice
