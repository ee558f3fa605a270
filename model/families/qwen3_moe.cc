// Qwen3, mixture of experts: Qwen3 with experts in all layers, or in those that decoder_sparse_step
// and mlp_only_layers leave.
#include <algorithm>

#include "base/status.h"
#include "model/families/config_fields.h"
#include "model/families/family.h"
#include "model/families/qwen_window.h"

namespace coppice::model {

Family Qwen3MoeFamily() {
  TensorNames names = Qwen3Family().names;
  names.router = "mlp.gate";
  names.experts = "mlp.experts.";
  return {
      "Qwen3MoeForCausalLM", names, [](const JsonFile& json, ModelConfig* config) -> absl::Status {
        COPPICE_RETURN_IF_ERROR(Qwen3Family().read(json, config));
        // With use_sliding_window all layers have the window.
        for (LayerParts& layer : config->layers) layer.window = 0;
        COPPICE_ASSIGN_OR_RETURN(const bool slides, json.BoolOr("use_sliding_window", false));
        if (slides) COPPICE_RETURN_IF_ERROR(SetWindowOfAll(json, 4096, config));
        // Newer folders have Mixtral's name.
        const bool newer = json.Has("num_local_experts");
        COPPICE_RETURN_IF_ERROR(ReadExperts(
            json,
            {.count = newer ? "num_local_experts" : "num_experts", .size = "moe_intermediate_size"},
            config));
        COPPICE_ASSIGN_OR_RETURN(config->experts.normalised, json.BoolOr("norm_topk_prob", false));
        COPPICE_ASSIGN_OR_RETURN(const int64_t step, json.IntOr("decoder_sparse_step", 1, 4096, 1));
        COPPICE_ASSIGN_OR_RETURN(const std::vector<int64_t> dense,
                                 json.IntsOr("mlp_only_layers", 0, config->num_layers - 1));
        for (int i = 0; i < config->num_layers; ++i) {
          const bool is_dense = std::find(dense.begin(), dense.end(), i) != dense.end();
          config->layers[i].experts = !is_dense && (i + 1) % step == 0;
        }
        return absl::OkStatus();
      }};
}

}  // namespace coppice::model
