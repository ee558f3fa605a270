// What a model says about special tokens beside the tokenizer file itself: config.json,
// generation_config.json and tokenizer_config.json, each optional. Called at start-up by the
// tokenizers.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/types.h"

namespace coppice::tokenizer {

struct SpecialTokenSettings {
  std::optional<TokenId> bos_id;         // config.json
  std::vector<TokenId> eos_ids;          // config.json and generation_config.json, ascending
  std::string bos_token;                 // tokenizer_config.json; "" = not given
  std::string eos_token;                 // tokenizer_config.json; "" = not given
  std::optional<bool> add_bos, add_eos;  // tokenizer_config.json
  std::optional<bool> legacy;            // tokenizer_config.json
};

// Errors name the file and the key.
absl::StatusOr<SpecialTokenSettings> ReadSpecialTokenSettings(const std::string& dir);

// path: DIR/NAME, or FILE.gguf/NAME (model_files/model_files.h).
bool FileExists(const std::string& path);

// The object in dir/name, or an empty one if there is no such file.
absl::StatusOr<nlohmann::json> ReadOptionalObject(const std::string& dir, const std::string& name);

}  // namespace coppice::tokenizer
