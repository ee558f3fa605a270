// The files that a Hugging Face folder has beside the weights, also of a model in a GGUF file: a
// path is DIR/NAME, or FILE.gguf/NAME for what the file says made into the text of that name
// (config.json, generation_config.json, tokenizer_config.json, tokenizer.json or tokenizer.model).
// Whoever reads settings or the tokenizer of a model reads them here. The weights are read by
// model/checkpoint.h. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace coppice::model_files {

// Whether the path of a model is that of a file, which must be GGUF, and not of a folder.
bool IsModelFile(const std::string& model);

bool ModelTextExists(const std::string& path);
// Errors of ReadRegularFile. Of a GGUF file: its name, the key or tensor, and what was expected.
absl::StatusOr<std::string> ReadModelText(const std::string& path, uint64_t most_bytes);

// How clients know a model: the last part of its path, without ".gguf".
std::string ModelName(const std::string& model);

}  // namespace coppice::model_files
