// The chat templates that are built in, for models whose folder has none: --chat_template=FAMILY.
// The texts are in families/*.jinja. Called at start-up.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace coppice::tokenizer {

// nullptr: there is no such family.
const char* FamilyTemplate(absl::string_view family);
std::vector<std::string> FamilyNames();

}  // namespace coppice::tokenizer
