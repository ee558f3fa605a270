// A folder with vocab.json and merges.txt and without tokenizer.json, as of OPT: read as the class
// that its tokenizer_config.json names reads it, which decides how words are cut. Called at
// start-up by Tokenizer::Load.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tokenizer/model_folder.h"
#include "tokenizer/tokenizer.h"

namespace coppice::tokenizer {

// Errors name the file, and the line of merges.txt.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadVocabFolder(const std::string& dir,
                                                           SpecialTokenSettings settings);

}  // namespace coppice::tokenizer
