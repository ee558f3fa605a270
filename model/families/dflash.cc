// Block drafters over the hidden states of a target. DFlash (arXiv 2602.06036), as z-lab
// publishes it: layers of Qwen3, embedding and head of the target. DSpark, as DeepSpec publishes it:
// the same with a bias by the token before, a shifted block, and often an embedding and a head.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/families/config_fields.h"
#include "model/families/family.h"

namespace coppice::model {
namespace {

TensorNames Names() {
  TensorNames names;
  names.embedding = "embed_tokens";
  names.final_norm = "norm";
  names.layers = "layers.";
  names.q_norm = "self_attn.q_norm";
  names.k_norm = "self_attn.k_norm";
  return names;
}

// Fields that are in the object dflash_config or beside it; those in the object count.
class DraftFields {
 public:
  static absl::StatusOr<DraftFields> Of(const JsonFile& json) {
    if (!json.Has("dflash_config")) return DraftFields(json, json);
    COPPICE_ASSIGN_OR_RETURN(JsonFile inner, json.Object("dflash_config"));
    return DraftFields(json, std::move(inner));
  }
  const JsonFile& With(const std::string& name) const { return inner_.Has(name) ? inner_ : json_; }

 private:
  DraftFields(JsonFile json, JsonFile inner) : json_(std::move(json)), inner_(std::move(inner)) {}
  JsonFile json_, inner_;
};

// All layers see everything: a window would also order the rows of a block.
absl::Status CheckNoWindows(const JsonFile& json, const ModelConfig& config) {
  COPPICE_RETURN_IF_ERROR(Require(json, "is_causal", false));
  COPPICE_ASSIGN_OR_RETURN(const std::vector<std::string> kinds, json.StringsOr("layer_types"));
  for (const std::string& kind : kinds) {
    if (kind == "full_attention") continue;
    return json.Error("layer_types", kind + " is not served yet in " + config.architecture +
                                         ", expected full_attention");
  }
  COPPICE_ASSIGN_OR_RETURN(const bool used, json.BoolOr("use_sliding_window", false));
  COPPICE_ASSIGN_OR_RETURN(const int64_t first, json.IntOr("max_window_layers", 0, 4096, 28));
  if (!used || !kinds.empty() || first >= config.num_layers || !json.Has("sliding_window"))
    return absl::OkStatus();
  return json.Error("max_window_layers",
                    absl::StrCat(first, ", expected num_hidden_layers (", config.num_layers,
                                 ") or more: windows are not served yet in ", config.architecture));
}

// The layers that a drafter takes if its config does not name them: evenly from the second to the
// third last of the target.
std::vector<int> SpreadLayers(int target_layers, int count) {
  if (count == 1) return {target_layers / 2};
  std::vector<int> layers;
  for (int i = 0; i < count; ++i) {
    const double place = 1 + i * static_cast<double>(target_layers - 4) / (count - 1);
    layers.push_back(static_cast<int>(std::nearbyint(place)));  // ties to even, as Python rounds
  }
  return layers;
}

// The last layer is refused, since what the published code takes after it is normed.
absl::Status ReadStates(const JsonFile& json, const DraftFields& fields, ModelConfig* config) {
  constexpr int kMostLayers = 4096;
  const std::string name = "target_layer_ids";
  TargetStates& states = config->states;
  states.use = TargetStates::Use::kContext;
  states.size = config->hidden_size;
  COPPICE_ASSIGN_OR_RETURN(const int64_t target_layers,
                           json.IntOr("num_target_layers", 4, kMostLayers, kMostLayers));
  const JsonFile& place = fields.With(name);
  COPPICE_ASSIGN_OR_RETURN(const std::vector<int64_t> ids,
                           place.IntsOr(name, 0, target_layers - 2));
  states.layers.assign(ids.begin(), ids.end());
  if (!ids.empty()) return absl::OkStatus();
  if (!json.Has("num_target_layers")) {
    return json.Error("num_target_layers",
                      "missing, expected an integer since " + name + " is missing too");
  }
  states.layers = SpreadLayers(static_cast<int>(target_layers), config->num_layers);
  return absl::OkStatus();
}

absl::Status ReadBlock(const JsonFile& json, const DraftFields& fields, int absent_size,
                       ModelConfig* config) {
  constexpr int kMostRows = 256, kMostRank = 1 << 16;
  const int least = config->block.in_place ? 2 : 1;
  const JsonFile& size = fields.With("block_size");
  COPPICE_ASSIGN_OR_RETURN(config->block.size,
                           absent_size == 0
                               ? size.Int("block_size", least, kMostRows)
                               : size.IntOr("block_size", least, kMostRows, absent_size));
  COPPICE_ASSIGN_OR_RETURN(
      config->block.mask,
      fields.With("mask_token_id").Int("mask_token_id", 0, config->vocab_size - 1));
  const JsonFile& markov = fields.With("markov_rank");
  COPPICE_ASSIGN_OR_RETURN(config->block.markov_rank, markov.IntOr("markov_rank", 0, kMostRank, 0));
  COPPICE_ASSIGN_OR_RETURN(const std::string kind, json.StringOr("markov_head_type", "vanilla"));
  if (kind == "vanilla") return absl::OkStatus();
  return json.Error("markov_head_type", kind + " is not served yet, expected vanilla");
}

absl::Status ReadDrafter(const JsonFile& json, bool in_place, ModelConfig* config) {
  COPPICE_RETURN_IF_ERROR(ReadLlamaParts(json, config));
  config->qk_norm = true;
  COPPICE_ASSIGN_OR_RETURN(config->attention_bias, json.BoolOr("attention_bias", false));
  config->output_bias = config->attention_bias;
  COPPICE_RETURN_IF_ERROR(CheckNoWindows(json, *config));
  COPPICE_ASSIGN_OR_RETURN(const DraftFields fields, DraftFields::Of(json));
  COPPICE_RETURN_IF_ERROR(ReadStates(json, fields, config));
  config->block.in_place = in_place;
  COPPICE_RETURN_IF_ERROR(ReadBlock(json, fields, in_place ? 16 : 0, config));
  const auto multiplier = [&](const std::string& name, float* value) {
    return ReadMultiplier(fields.With(name), name, value);
  };
  COPPICE_RETURN_IF_ERROR(multiplier("input_embedding_scale", &config->embedding_scale));
  COPPICE_RETURN_IF_ERROR(multiplier("output_multiplier", &config->logit_scale));
  const std::string cap = "final_logit_softcapping";
  if (fields.With(cap).Has(cap)) {
    COPPICE_ASSIGN_OR_RETURN(const double most, fields.With(cap).PositiveNumber(cap));
    config->logit_softcap = static_cast<float>(most);
  }
  return absl::OkStatus();
}

}  // namespace

Family DFlashFamily() {
  return {"DFlashDraftModel", Names(), [](const JsonFile& json, ModelConfig* config) {
            return ReadDrafter(json, /*in_place=*/true, config);
          }};
}

Family DSparkFamily() {
  return {"Qwen3DSparkModel", Names(), [](const JsonFile& json, ModelConfig* config) {
            return ReadDrafter(json, /*in_place=*/false, config);
          }};
}

}  // namespace coppice::model
