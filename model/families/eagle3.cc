// EAGLE-3 heads (Li et al. 2025, arXiv:2503.01840): one Llama layer whose attention reads the
// embedding of a row's token and, beside it, a state: of the target's hidden states of some layers,
// joined by fc, or the output of the row before. As the authors, SpecForge, and vLLM's speculators
// (with the fields of the layer in transformer_layer_config) write them.
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/families/config_fields.h"
#include "model/families/family.h"
#include "model/families/rope_fields.h"

namespace coppice::model {
namespace {

constexpr char kLayerIds[] = "eagle_aux_hidden_state_layer_ids";
constexpr int kMostLayers = 4096;

// The layers as `json` lists them. first: the id of the first layer.
absl::Status ReadLayerIds(const JsonFile& json, int first, std::vector<int>* layers) {
  COPPICE_ASSIGN_OR_RETURN(const std::vector<int64_t> ids,
                           json.IntsOr(kLayerIds, first, kMostLayers));
  layers->clear();
  for (const int64_t id : ids) {
    const int layer = static_cast<int>(id) - first;
    for (const int before : *layers) {
      if (before == layer) return json.Error(kLayerIds, absl::StrCat(id, " is listed twice"));
    }
    layers->push_back(layer);
  }
  return absl::OkStatus();
}

// What only some heads have, from the object of config.json and from its eagle_config.
absl::Status ReadVariants(const JsonFile& json, TargetStates* states) {
  using Norm = TargetStates::Norm;
  COPPICE_ASSIGN_OR_RETURN(const bool whole,
                           json.BoolOr("norm_before_fc", states->norm == Norm::kWhole));
  COPPICE_ASSIGN_OR_RETURN(const bool each, json.BoolOr("fc_norm", states->norm == Norm::kEach));
  if (whole && each)
    return json.Error("norm_before_fc", "true beside fc_norm, expected one of them");
  states->norm = whole ? Norm::kWhole : each ? Norm::kEach : Norm::kNone;
  COPPICE_ASSIGN_OR_RETURN(states->normed_residual,
                           json.BoolOr("norm_before_residual", states->normed_residual));
  COPPICE_ASSIGN_OR_RETURN(states->normed_output,
                           json.BoolOr("norm_output", states->normed_output));
  for (const char* field :
       {"use_aux_hidden_state", "use_input_layernorm_in_first_layer", "use_last_layernorm"}) {
    COPPICE_RETURN_IF_ERROR(Require(json, field, /*served=*/true));
  }
  return absl::OkStatus();
}

absl::Status ReadStates(const JsonFile& json, ModelConfig* config) {
  TargetStates& states = config->states;
  states.use = TargetStates::Use::kBesideEmbedding;
  COPPICE_ASSIGN_OR_RETURN(states.size,
                           json.IntOr("target_hidden_size", 1, 1 << 20, config->hidden_size));
  // vLLM's ids count what goes into a layer: 0 is the embedding. Those of eagle_config, what comes
  // out of it.
  COPPICE_RETURN_IF_ERROR(ReadLayerIds(json, /*first=*/1, &states.layers));
  COPPICE_RETURN_IF_ERROR(ReadVariants(json, &states));
  if (!json.Has("eagle_config")) return absl::OkStatus();
  COPPICE_ASSIGN_OR_RETURN(const JsonFile more, json.Object("eagle_config"));
  if (states.layers.empty())
    COPPICE_RETURN_IF_ERROR(ReadLayerIds(more, /*first=*/0, &states.layers));
  return ReadVariants(more, &states);
}

// Positions of a scaling that knows how long texts are cannot go on.
absl::StatusOr<bool> AnyPositions(const JsonFile& json) {
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    if (!json.Has(name)) continue;
    COPPICE_ASSIGN_OR_RETURN(const JsonFile scaling, json.Object(name));
    COPPICE_ASSIGN_OR_RETURN(const std::string old_name, scaling.StringOr("type", "default"));
    COPPICE_ASSIGN_OR_RETURN(const std::string type, scaling.StringOr("rope_type", old_name));
    return type == "default" || type == "linear" || type == "llama3";
  }
  return true;
}

// A window, if the layer is sliding_attention.
absl::Status ReadWindow(const JsonFile& json, ModelConfig* config) {
  COPPICE_ASSIGN_OR_RETURN(const std::vector<std::string> kinds, json.StringsOr("layer_types"));
  if (kinds.empty() || kinds[0] != "sliding_attention") return absl::OkStatus();
  COPPICE_ASSIGN_OR_RETURN(config->layers[0].window, json.Int("sliding_window", 1, 1 << 24));
  return absl::OkStatus();
}

absl::Status ReadEagle3(const JsonFile& json, ModelConfig* config) {
  COPPICE_ASSIGN_OR_RETURN(const JsonFile layer, LayerFields(json));
  COPPICE_RETURN_IF_ERROR(ReadLlamaParts(layer, config));
  if (config->num_layers != 1) {
    return layer.Error(
        "num_hidden_layers",
        absl::StrCat(config->num_layers, " is not served yet, expected 1: a head has one layer"));
  }
  COPPICE_ASSIGN_OR_RETURN(config->attention_bias, layer.BoolOr("attention_bias", false));
  config->output_bias = config->attention_bias;
  COPPICE_RETURN_IF_ERROR(ReadWindow(layer, config));
  COPPICE_ASSIGN_OR_RETURN(config->states.any_positions, AnyPositions(layer));
  return ReadStates(json, config);
}

}  // namespace

Family Eagle3Family(absl::string_view architecture) {
  TensorNames names;
  names.embedding = "embed_tokens";
  names.final_norm = "norm";
  names.layers = "layers.";
  names.state_norm = "hidden_norm";
  names.q_norm = "self_attn.q_norm";
  names.k_norm = "self_attn.k_norm";
  return {architecture, names, ReadEagle3};
}

}  // namespace coppice::model
