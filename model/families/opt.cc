// OPT: layer norms with biases, learned positions, an MLP without a gate. The 350M model has its
// norms after the sums and an embedding of another width, which is projected.
#include "base/status.h"
#include "model/families/config_fields.h"
#include "model/families/family.h"

namespace coppice::model {

Family OptFamily() {
  TensorNames names;
  names.embedding = "model.decoder.embed_tokens";
  names.positions = "model.decoder.embed_positions";
  names.project_in = "model.decoder.project_in";
  names.project_out = "model.decoder.project_out";
  names.final_norm = "model.decoder.final_layer_norm";
  names.layers = "model.decoder.layers.";
  names.attention_norm = "self_attn_layer_norm";
  names.output = "self_attn.out_proj";
  names.mlp_norm = "final_layer_norm";
  names.gate = "";
  names.up = "fc1";
  names.down = "fc2";
  return {"OPTForCausalLM", names, [](const JsonFile& json, ModelConfig* config) -> absl::Status {
            COPPICE_RETURN_IF_ERROR(ReadSizes(json, config, {.intermediate = "ffn_dim"}));
            for (LayerParts& layer : config->layers) layer.rope = -1;
            config->position_offset = 2;
            config->norm = kernels::NormKind::kLayer;
            config->norm_bias = true;
            COPPICE_ASSIGN_OR_RETURN(const bool before, json.BoolOr("do_layer_norm_before", true));
            config->norm_place = before ? NormPlace::kBefore : NormPlace::kAfterSum;
            if (before) COPPICE_RETURN_IF_ERROR(Require(json, "_remove_final_layer_norm", false));
            COPPICE_RETURN_IF_ERROR(Require(json, "layer_norm_elementwise_affine", true));
            COPPICE_ASSIGN_OR_RETURN(config->attention_bias, json.BoolOr("enable_bias", true));
            config->output_bias = config->mlp_bias = config->attention_bias;
            config->gated_mlp = false;
            COPPICE_RETURN_IF_ERROR(ReadActivation(json, "activation_function", "relu", config));
            COPPICE_ASSIGN_OR_RETURN(
                config->embedding_size,
                json.IntOr("word_embed_proj_dim", 1, 1 << 20, config->hidden_size));
            COPPICE_ASSIGN_OR_RETURN(config->tied_head, json.BoolOr("tie_word_embeddings", true));
            return absl::OkStatus();
          }};
}

}  // namespace coppice::model
