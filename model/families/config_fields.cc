#include "model/families/config_fields.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/families/rope_fields.h"

namespace coppice::model {

absl::Status ReadSizes(const JsonFile& json, ModelConfig* config, const SizeFields& fields) {
  constexpr int64_t kLargest = 1 << 24;
  COPPICE_ASSIGN_OR_RETURN(config->hidden_size, json.Int(fields.hidden, 1, 1 << 20));
  COPPICE_ASSIGN_OR_RETURN(config->intermediate_size, json.Int(fields.intermediate, 1, 1 << 22));
  COPPICE_ASSIGN_OR_RETURN(config->num_layers, json.Int(fields.layers, 1, 4096));
  COPPICE_ASSIGN_OR_RETURN(config->num_heads, json.Int(fields.heads, 1, 1 << 16));
  COPPICE_ASSIGN_OR_RETURN(config->num_kv_heads,
                           json.IntOr(fields.kv_heads, 1, 1 << 16, config->num_heads));
  COPPICE_ASSIGN_OR_RETURN(config->max_positions, json.Int(fields.positions, 1, kLargest));
  config->embedding_size = config->hidden_size;
  if (config->num_heads % config->num_kv_heads != 0) {
    return json.Error(fields.heads, absl::StrCat(config->num_heads, ", expected a multiple of ",
                                                 fields.kv_heads, " (", config->num_kv_heads, ")"));
  }
  if (!json.Has(fields.head_dim) && config->hidden_size % config->num_heads != 0) {
    return json.Error(fields.hidden, absl::StrCat(config->hidden_size, ", expected a multiple of ",
                                                  fields.heads, " (", config->num_heads, ") since ",
                                                  fields.head_dim, " is not given"));
  }
  COPPICE_ASSIGN_OR_RETURN(config->head_dim, json.IntOr(fields.head_dim, 1, 4096,
                                                        config->hidden_size / config->num_heads));
  config->attention_scale = 1.0f / std::sqrt(static_cast<float>(config->head_dim));
  config->layers.assign(config->num_layers, LayerParts());
  return absl::OkStatus();
}

absl::Status ReadActivation(const JsonFile& json, const std::string& field,
                            const std::string& absent, ModelConfig* config) {
  COPPICE_ASSIGN_OR_RETURN(const std::string name, json.StringOr(field, absent));
  if (name == "silu" || name == "swish") {
    config->activation = kernels::Activation::kSilu;
  } else if (name == "gelu") {
    config->activation = kernels::Activation::kGelu;
  } else if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") {
    config->activation = kernels::Activation::kGeluTanh;
  } else if (name == "relu") {
    config->activation = kernels::Activation::kRelu;
  } else {
    return json.Error(
        field, absl::StrCat(name, ", expected silu, gelu, gelu_new, gelu_pytorch_tanh or relu"));
  }
  return absl::OkStatus();
}

absl::Status SetWindows(const JsonFile& json, int absent_window,
                        const std::function<bool(int)>& slides, ModelConfig* config, int rope) {
  COPPICE_ASSIGN_OR_RETURN(const std::vector<std::string> kinds, json.StringsOr("layer_types"));
  COPPICE_ASSIGN_OR_RETURN(const int64_t length,
                           json.IntOr("sliding_window", 0, int64_t{1} << 40,
                                      json.IsNull("sliding_window") ? 0 : absent_window));
  const int window = length < config->max_positions ? static_cast<int>(length) : 0;
  const auto layers = static_cast<size_t>(config->num_layers);
  if (!kinds.empty() && kinds.size() != layers) {
    return json.Error("layer_types", absl::StrCat(kinds.size(), " entries, expected ", layers,
                                                  " as num_hidden_layers says"));
  }
  for (size_t i = 0; i < layers; ++i) {
    bool sliding = kinds.empty() && slides(static_cast<int>(i));
    if (!kinds.empty()) {
      sliding = kinds[i] == "sliding_attention";
      if (!sliding && kinds[i] != "full_attention") {
        return json.Error("layer_types",
                          kinds[i] + ", expected full_attention or sliding_attention");
      }
      if (sliding && length == 0) {
        return json.Error("sliding_window",
                          "missing, expected an integer since layer_types has sliding_attention");
      }
    }
    if (sliding) config->layers[i].window = window, config->layers[i].rope = rope;
  }
  return absl::OkStatus();
}

absl::Status SetWindowOfAll(const JsonFile& json, int absent_window, ModelConfig* config) {
  COPPICE_ASSIGN_OR_RETURN(const std::vector<std::string> kinds, json.StringsOr("layer_types"));
  for (const std::string& kind : kinds) {
    if (kind == kinds[0]) continue;
    return json.Error("layer_types",
                      absl::StrCat(kinds[0], " and ", kind, ", expected one kind, as ",
                                   config->architecture, " has"));
  }
  return SetWindows(
      json, absent_window, [](int) { return true; }, config);
}

absl::Status ReadLlamaParts(const JsonFile& json, ModelConfig* config, double default_theta) {
  COPPICE_RETURN_IF_ERROR(ReadSizes(json, config));
  COPPICE_ASSIGN_OR_RETURN(kernels::RopeConfig rope,
                           ReadRopeOf(json, {.default_theta = default_theta}, config));
  config->ropes.push_back(std::move(rope));
  COPPICE_RETURN_IF_ERROR(ReadActivation(json, "hidden_act", "silu", config));
  COPPICE_ASSIGN_OR_RETURN(config->mlp_bias, json.BoolOr("mlp_bias", false));
  COPPICE_ASSIGN_OR_RETURN(const double epsilon, json.PositiveNumber("rms_norm_eps"));
  config->norm_epsilon = static_cast<float>(epsilon);
  return absl::OkStatus();
}

absl::Status ReadExperts(const JsonFile& json, const ExpertFields& fields, ModelConfig* config) {
  ExpertParts& experts = config->experts;
  COPPICE_ASSIGN_OR_RETURN(experts.count, json.Int(fields.count, 1, 1 << 16));
  COPPICE_ASSIGN_OR_RETURN(experts.size, json.Int(fields.size, 1, 1 << 22));
  COPPICE_ASSIGN_OR_RETURN(experts.chosen, json.Int(fields.chosen, 1, experts.count));
  return absl::OkStatus();
}

absl::Status ReadMultiplier(const JsonFile& json, const std::string& field, float* multiplier) {
  COPPICE_ASSIGN_OR_RETURN(const double value, json.PositiveNumberOr(field, *multiplier));
  *multiplier = static_cast<float>(value);
  return absl::OkStatus();
}

absl::Status Require(const JsonFile& json, const std::string& field, bool served) {
  COPPICE_ASSIGN_OR_RETURN(const bool value, json.BoolOr(field, served));
  if (value == served) return absl::OkStatus();
  return json.Error(field, absl::StrCat(value ? "true" : "false", " is not served yet, expected ",
                                        served ? "true" : "false"));
}

}  // namespace coppice::model
