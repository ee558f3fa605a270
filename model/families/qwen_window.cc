#include "model/families/qwen_window.h"

#include "base/status.h"
#include "model/families/config_fields.h"

namespace coppice::model {

absl::Status ReadQwenWindow(const JsonFile& json, ModelConfig* config) {
  COPPICE_ASSIGN_OR_RETURN(const bool used, json.BoolOr("use_sliding_window", false));
  if (!used) return absl::OkStatus();
  COPPICE_ASSIGN_OR_RETURN(const int64_t first, json.IntOr("max_window_layers", 0, 4096, 28));
  return SetWindows(
      json, 4096, [first](int layer) { return layer >= first; }, config);
}

}  // namespace coppice::model
