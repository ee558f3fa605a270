// The tokenizer of a GGUF file as the files of a Hugging Face folder. A byte-level vocabulary with
// merges ("gpt2") becomes a tokenizer.json, one of SentencePiece's kind with scores ("llama") a
// tokenizer.model. Nothing is approximated: what is not known is refused by name. Pure. Called by
// model_files.cc.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model_files/gguf_file.h"
#include "nlohmann/json_fwd.hpp"

namespace coppice::model_files {

// "tokenizer.json" or "tokenizer.model".
absl::StatusOr<std::string> GgufTokenizerName(const GgufFile& file);
// The content of that file.
absl::StatusOr<std::string> GgufTokenizer(const GgufFile& file);
// tokenizer_config.json: special tokens, whether they are added, the chat template.
absl::StatusOr<nlohmann::json> GgufTokenizerConfig(const GgufFile& file);
// generation_config.json: the tokens that end an answer.
absl::StatusOr<nlohmann::json> GgufGenerationConfig(const GgufFile& file);
// Adds bos_token_id and eos_token_id to a config.json, as far as the file gives them.
absl::Status AddSpecialIds(const GgufFile& file, nlohmann::json* config);

}  // namespace coppice::model_files
