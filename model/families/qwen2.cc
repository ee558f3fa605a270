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

}  // namespace coppice::model
