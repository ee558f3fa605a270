// GET /tokenizer_info: what the model's folder says about its tokenizer. Called at start-up.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tokenizer/tokenizer.h"

namespace coppice::coordinator {

// config: the text of tokenizer_config.json; "": there is none. chat_template: the one that is
// used; "": none. The answer has the members of the file, and always `tokenizer_class` (null if the
// file does not say), `chat_template` (null if there is none) and `vocab_size`.
std::string TokenizerInfoJson(absl::string_view config, const std::string& chat_template,
                              int vocab_size);
// The same for a model folder. chat_template: as for tokenizer::ChatPrompt::Load.
absl::StatusOr<std::string> LoadTokenizerInfo(const std::string& dir,
                                              const std::string& chat_template,
                                              const tokenizer::Tokenizer& tokenizer);

}  // namespace coppice::coordinator
