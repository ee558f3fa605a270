// SmolLM3: Llama with layers whose positions do not rotate, every fourth if config.json does not
// say.
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/families/config_fields.h"
#include "model/families/family.h"

namespace coppice::model {

Family SmolLm3Family() {
  return {"SmolLM3ForCausalLM", TensorNames(),
          [](const JsonFile& json, ModelConfig* config) -> absl::Status {
            COPPICE_RETURN_IF_ERROR(ReadLlamaParts(json, config, /*default_theta=*/2e6));
            config->tied_head = true;  // if config.json does not say
            COPPICE_ASSIGN_OR_RETURN(config->attention_bias, json.BoolOr("attention_bias", false));
            config->output_bias = config->attention_bias;
            COPPICE_ASSIGN_OR_RETURN(const int64_t interval,
                                     json.IntOr("no_rope_layer_interval", 1, 4096, 4));
            // 1: the layer's positions rotate.
            COPPICE_ASSIGN_OR_RETURN(const std::vector<int64_t> rotates,
                                     json.IntsOr("no_rope_layers", 0, 1));
            const auto layers = static_cast<size_t>(config->num_layers);
            if (!rotates.empty() && rotates.size() != layers) {
              return json.Error("no_rope_layers",
                                absl::StrCat(rotates.size(), " entries, expected ", layers,
                                             " as num_hidden_layers says"));
            }
            const auto rotated = [&](int i) {
              return rotates.empty() ? (i + 1) % interval != 0 : rotates[i] == 1;
            };
            // Layers that do not rotate may slide.
            COPPICE_ASSIGN_OR_RETURN(const bool slides, json.BoolOr("use_sliding_window", false));
            COPPICE_RETURN_IF_ERROR(SetWindows(
                json, 0, [&](int i) { return slides && !rotated(i); }, config));
            for (int i = 0; i < config->num_layers; ++i)
              config->layers[i].rope = rotated(i) ? 0 : -1;
            return absl::OkStatus();
          }};
}

}  // namespace coppice::model
