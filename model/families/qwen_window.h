// The sliding windows of Qwen's families.
#pragma once

#include "absl/status/status.h"
#include "model/json_file.h"
#include "model/model_config.h"

namespace coppice::model {

// With use_sliding_window, the layers from max_window_layers on have a window.
absl::Status ReadQwenWindow(const JsonFile& json, ModelConfig* config);

}  // namespace coppice::model
