// The text of the chat template of a model folder, or of one that is given instead. Called at
// start-up.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace coppice::tokenizer {

struct TemplateSource {
  std::string text;
  std::string name;  // file or family, for messages; "" = there is no template
};

// choice: as in ChatPrompt::Load. Errors name the file and what was expected.
absl::StatusOr<TemplateSource> FindTemplate(const std::string& dir, const std::string& choice);

}  // namespace coppice::tokenizer
