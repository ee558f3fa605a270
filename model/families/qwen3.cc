// Qwen3, dense: Llama with a norm of each q and k head.
#include "base/status.h"
#include "model/families/config_fields.h"
#include "model/families/family.h"
#include "model/families/qwen_window.h"

namespace coppice::model {

Family Qwen3Family() {
  TensorNames names;
  names.q_norm = "self_attn.q_norm";
  names.k_norm = "self_attn.k_norm";
  return {"Qwen3ForCausalLM", names, [](const JsonFile& json, ModelConfig* config) -> absl::Status {
            COPPICE_RETURN_IF_ERROR(ReadLlamaParts(json, config));
            config->qk_norm = true;
            COPPICE_ASSIGN_OR_RETURN(config->attention_bias, json.BoolOr("attention_bias", false));
            config->output_bias = config->attention_bias;
            return ReadQwenWindow(json, config);
          }};
}

}  // namespace coppice::model
