// OLMo 2: Llama with norms of what attention and MLP add instead of what they read, and of q and k
// over all heads.
#include "base/status.h"
#include "model/families/config_fields.h"
#include "model/families/family.h"

namespace coppice::model {

Family Olmo2Family() {
  TensorNames names;
  names.attention_norm = names.mlp_norm = "";
  names.attention_out_norm = "post_attention_layernorm";
  names.mlp_out_norm = "post_feedforward_layernorm";
  names.q_norm = "self_attn.q_norm";
  names.k_norm = "self_attn.k_norm";
  return {"Olmo2ForCausalLM", names, [](const JsonFile& json, ModelConfig* config) -> absl::Status {
            COPPICE_RETURN_IF_ERROR(ReadLlamaParts(json, config));
            config->norm_place = NormPlace::kAfter;
            config->qk_norm = config->whole_qk_norm = true;
            COPPICE_ASSIGN_OR_RETURN(config->attention_bias, json.BoolOr("attention_bias", false));
            config->output_bias = config->attention_bias;
            return absl::OkStatus();
          }};
}

}  // namespace coppice::model
