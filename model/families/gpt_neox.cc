// GPT-NeoX and Pythia: layer norms with biases, attention and MLP beside each other, q, k and v of
// each head together, rotary positions of a part of a head, an MLP without a gate.
#include "base/status.h"
#include "model/families/config_fields.h"
#include "model/families/family.h"
#include "model/families/rope_fields.h"

namespace coppice::model {

Family GptNeoXFamily() {
  TensorNames names;
  names.embedding = "gpt_neox.embed_in";
  names.final_norm = "gpt_neox.final_layer_norm";
  names.head = "embed_out";
  names.layers = "gpt_neox.layers.";
  names.qkv = "attention.query_key_value";
  names.qkv_by_head = true;
  names.output = "attention.dense";
  names.gate = "";
  names.up = "mlp.dense_h_to_4h";
  names.down = "mlp.dense_4h_to_h";
  return {"GPTNeoXForCausalLM", names,
          [](const JsonFile& json, ModelConfig* config) -> absl::Status {
            // As many KV heads as heads, of hidden / heads dimensions, whatever other fields say.
            const SizeFields fields = {.kv_heads = "num_attention_heads", .head_dim = ""};
            COPPICE_RETURN_IF_ERROR(ReadSizes(json, config, fields));
            COPPICE_ASSIGN_OR_RETURN(
                kernels::RopeConfig rope,
                ReadRopeOf(json, {.theta_field = "rotary_emb_base", .default_part = 0.25}, config));
            config->ropes.push_back(std::move(rope));
            config->norm = kernels::NormKind::kLayer;
            config->norm_bias = true;
            COPPICE_ASSIGN_OR_RETURN(const double epsilon,
                                     json.PositiveNumberOr("layer_norm_eps", 1e-5));
            config->norm_epsilon = static_cast<float>(epsilon);
            COPPICE_ASSIGN_OR_RETURN(config->attention_bias, json.BoolOr("attention_bias", true));
            config->output_bias = config->attention_bias;
            config->mlp_bias = true;
            config->gated_mlp = false;
            COPPICE_RETURN_IF_ERROR(ReadActivation(json, "hidden_act", "gelu", config));
            COPPICE_ASSIGN_OR_RETURN(config->parallel_residual,
                                     json.BoolOr("use_parallel_residual", true));
            return absl::OkStatus();
          }};
}

}  // namespace coppice::model
