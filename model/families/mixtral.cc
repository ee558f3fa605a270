// Mixtral: Mistral with experts in every layer.
#include "base/status.h"
#include "model/families/config_fields.h"
#include "model/families/family.h"

namespace coppice::model {

Family MixtralFamily() {
  TensorNames names;
  names.router = "block_sparse_moe.gate";
  names.experts = "block_sparse_moe.experts.";
  names.expert_gate = "w1";
  names.expert_down = "w2";
  names.expert_up = "w3";
  return {
      "MixtralForCausalLM", names, [](const JsonFile& json, ModelConfig* config) -> absl::Status {
        COPPICE_RETURN_IF_ERROR(ReadLlamaParts(json, config, /*default_theta=*/1e6));
        COPPICE_RETURN_IF_ERROR(
            ReadExperts(json, {.count = "num_local_experts", .size = "intermediate_size"}, config));
        config->experts.normalised = true;
        for (LayerParts& layer : config->layers) layer.experts = true;
        return SetWindowOfAll(json, 0, config);
      }};
}

}  // namespace coppice::model
