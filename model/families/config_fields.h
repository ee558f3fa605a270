// Reads what config.json says of parts that several families have. Errors name the file, the field
// and what was expected.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "model/json_file.h"
#include "model/model_config.h"

namespace coppice::model {

// The names of sizes.
struct SizeFields {
  std::string hidden = "hidden_size";
  std::string intermediate = "intermediate_size";
  std::string layers = "num_hidden_layers";
  std::string heads = "num_attention_heads";
  std::string kv_heads = "num_key_value_heads";  // absent: as many as heads
  std::string head_dim = "head_dim";             // absent: hidden / heads
  std::string positions = "max_position_embeddings";
};
// Sizes; layers without windows that use ropes[0]; scores scaled by 1 / sqrt(head_dim).
absl::Status ReadSizes(const JsonFile& json, ModelConfig* config, const SizeFields& fields = {});

// The activation of an MLP; absent: `absent`, a name of Transformers ("silu").
absl::Status ReadActivation(const JsonFile& json, const std::string& field,
                            const std::string& absent, ModelConfig* config);

// Sets the window, and ropes[rope], of the layers that layer_types calls sliding_attention; absent:
// of those for which `slides` is true. The window is sliding_window; absent: absent_window. null, 0,
// or one that is as long as the context: none.
absl::Status SetWindows(const JsonFile& json, int absent_window,
                        const std::function<bool(int)>& slides, ModelConfig* config, int rope = 0);

// The same for families whose layers all have the window. layer_types, which they do not have, may
// only say so, too.
absl::Status SetWindowOfAll(const JsonFile& json, int absent_window, ModelConfig* config);

// What most families share with Llama: sizes, RMS norms (rms_norm_eps), one set of rotary positions
// (rope_theta, if absent default_theta), a gated MLP (hidden_act, SiLU if absent; mlp_bias). No
// windows.
absl::Status ReadLlamaParts(const JsonFile& json, ModelConfig* config,
                            double default_theta = 10000);

// The fields of a mixture of experts.
struct ExpertFields {
  std::string count;
  std::string size;
  std::string chosen = "num_experts_per_tok";
};
absl::Status ReadExperts(const JsonFile& json, const ExpertFields& fields, ModelConfig* config);

// `field` as a multiplier. Absent: 1.
absl::Status ReadMultiplier(const JsonFile& json, const std::string& field, float* multiplier);

// A choice of which only `served` is; absent: that one.
absl::Status Require(const JsonFile& json, const std::string& field, bool served);

}  // namespace coppice::model
