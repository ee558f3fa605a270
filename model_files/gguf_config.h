// The metadata of a GGUF file as the config.json that the same model has in a Hugging Face folder,
// so that one reader of a family serves both. Pure. Called by model_files.cc.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "base/types.h"
#include "model_files/gguf_file.h"
#include "nlohmann/json_fwd.hpp"

namespace coppice::model_files {

// general.architecture of the file. InvalidArgument names those that are served.
absl::StatusOr<std::string> GgufArchitecture(const GgufFile& file);

// InvalidArgument names the key or tensor that is missing, out of its range, or not served.
absl::StatusOr<nlohmann::json> GgufConfig(const GgufFile& file);

}  // namespace coppice::model_files
