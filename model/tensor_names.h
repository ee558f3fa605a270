// The names of a family's tensors in a Hugging Face folder, without ".weight" and ".bias". A part
// that the family does not have has an empty name.
#pragma once

#include "absl/strings/string_view.h"

namespace coppice::model {

struct TensorNames {
  absl::string_view embedding = "model.embed_tokens";
  absl::string_view positions;    // learned positions
  absl::string_view project_in;   // from the width of the embedding to that of the layers
  absl::string_view project_out;  // and back, before the head
  absl::string_view final_norm = "model.norm";
  absl::string_view head = "lm_head";

  absl::string_view layers = "model.layers.";  // then the number of the layer, a dot, and a name:
  absl::string_view attention_norm = "input_layernorm";
  absl::string_view attention_out_norm;  // of what attention adds
  absl::string_view state_norm;          // of the target's state beside the embedding
  absl::string_view q = "self_attn.q_proj";
  absl::string_view k = "self_attn.k_proj";
  absl::string_view v = "self_attn.v_proj";
  absl::string_view qkv;     // if not empty: q, k and v stacked in one tensor
  bool qkv_by_head = false;  // there q, k and v of each head lie together
  absl::string_view q_norm;
  absl::string_view k_norm;
  absl::string_view output = "self_attn.o_proj";
  absl::string_view mlp_norm = "post_attention_layernorm";
  absl::string_view mlp_out_norm;  // of what the MLP adds
  absl::string_view gate = "mlp.gate_proj";
  absl::string_view up = "mlp.up_proj";
  absl::string_view gate_up;  // if not empty: gate and up stacked in one tensor
  absl::string_view down = "mlp.down_proj";
  absl::string_view router;   // [experts, hidden]
  absl::string_view experts;  // then the number of the expert, a dot, and a name:
  absl::string_view expert_gate = "gate_proj";
  absl::string_view expert_up = "up_proj";
  absl::string_view expert_down = "down_proj";
};

}  // namespace coppice::model
