// What the families of Gemma share.
#pragma once

#include "absl/status/status.h"
#include "model/json_file.h"
#include "model/model_config.h"
#include "model/tensor_names.h"

namespace coppice::model {

// Norms before and after attention and MLP.
inline TensorNames GemmaNames() {
  TensorNames names;
  names.attention_out_norm = "post_attention_layernorm";
  names.mlp_norm = "pre_feedforward_layernorm";
  names.mlp_out_norm = "post_feedforward_layernorm";
  return names;
}

// Sizes, norms whose gains are stored less 1, GELU, an embedding multiplied by the root of the
// hidden size, scores divided by the root of query_pre_attn_scalar, caps, a tied head. Not the
// windows and positions.
// scores_cap, logits_cap: the caps if config.json does not say; 0: none.
absl::Status ReadGemmaParts(const JsonFile& json, float scores_cap, float logits_cap,
                            ModelConfig* config);

}  // namespace coppice::model
