// Whether bytes are UTF-8, for texts that come from files. Pure.
#pragma once

#include "absl/strings/string_view.h"

namespace coppice {

// No byte out of place, no overlong form, no surrogate, nothing beyond U+10FFFF.
bool IsValidUtf8(absl::string_view text);

}  // namespace coppice
