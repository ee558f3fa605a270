// Qwen2 and Qwen2.5: Llama with biases of q, k and v. With use_sliding_window the layers from
// max_window_layers on have a window.
#include "base/status.h"
#include "model/families/config_fields.h"
#include "model/families/family.h"
#include "model/families/qwen_window.h"

namespace coppice::model {

Family Qwen2Family() {
  return {"Qwen2ForCausalLM", TensorNames(),
          [](const JsonFile& json, ModelConfig* config) -> absl::Status {
            COPPICE_RETURN_IF_ERROR(ReadLlamaParts(json, config));
            config->attention_bias = true;
            return ReadQwenWindow(json, config);
          }};
}

absl::Status ReadQwenWindow(const JsonFile& json, ModelConfig* config) {
  COPPICE_ASSIGN_OR_RETURN(const bool used, json.BoolOr("use_sliding_window", false));
  if (!used) return absl::OkStatus();
  COPPICE_ASSIGN_OR_RETURN(const int64_t first, json.IntOr("max_window_layers", 0, 4096, 28));
  return SetWindows(
      json, 4096, [first](int layer) { return layer >= first; }, config);
}

}  // namespace coppice::model
