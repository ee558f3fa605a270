#include "model/model_config.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "model/json_file.h"
#include "model_files/model_files.h"

namespace coppice::model {
namespace {

// One row per architecture of config.json. All have RMS norm, rotary positions and a SwiGLU MLP,
// which decoder.cc computes. A family with other parts has no row and is refused by name.
struct Family {
  const char* architecture;
  std::optional<bool>
      attention_bias;  // nullopt: config.json's attention_bias, on q, k, v and the output
  int64_t window = 0;  // the window that Transformers assumes if sliding_window is absent; 0: none
};
constexpr Family kFamilies[] = {
    {"LlamaForCausalLM", std::nullopt},
    {"MistralForCausalLM", false, 4096},
    {"Qwen2ForCausalLM", true},
};

absl::StatusOr<const Family*> ReadFamily(const JsonFile& json) {
  COPPICE_ASSIGN_OR_RETURN(const std::vector<std::string> architectures,
                           json.StringsOr("architectures"));
  if (architectures.size() != 1) return json.Error("architectures", "expected a list of one name");
  for (const Family& family : kFamilies) {
    if (architectures[0] == family.architecture) return &family;
  }
  const auto name = [](std::string* out, const Family& family) {
    out->append(family.architecture);
  };
  return json.Error("architectures", absl::StrCat(architectures[0], " is not served yet (",
                                                  absl::StrJoin(kFamilies, ", ", name), " are)"));
}

absl::Status ParseSizes(const JsonFile& json, ModelConfig* config) {
  constexpr int64_t kLargest = 1 << 24;
  COPPICE_ASSIGN_OR_RETURN(config->vocab_size, json.Int("vocab_size", 1, kLargest));
  COPPICE_ASSIGN_OR_RETURN(config->hidden_size, json.Int("hidden_size", 1, 1 << 20));
  COPPICE_ASSIGN_OR_RETURN(config->intermediate_size, json.Int("intermediate_size", 1, 1 << 22));
  COPPICE_ASSIGN_OR_RETURN(config->num_layers, json.Int("num_hidden_layers", 1, 4096));
  COPPICE_ASSIGN_OR_RETURN(config->num_heads, json.Int("num_attention_heads", 1, 1 << 16));
  COPPICE_ASSIGN_OR_RETURN(config->num_kv_heads,
                           json.IntOr("num_key_value_heads", 1, 1 << 16, config->num_heads));
  COPPICE_ASSIGN_OR_RETURN(config->max_positions, json.Int("max_position_embeddings", 1, kLargest));
  if (config->num_heads % config->num_kv_heads != 0) {
    return json.Error(
        "num_attention_heads",
        absl::StrCat(config->num_heads, ", expected a multiple of num_key_value_heads (",
                     config->num_kv_heads, ")"));
  }
  if (!json.Has("head_dim") && config->hidden_size % config->num_heads != 0) {
    return json.Error(
        "hidden_size",
        absl::StrCat(config->hidden_size, ", expected a multiple of num_attention_heads (",
                     config->num_heads, ") since head_dim is not given"));
  }
  COPPICE_ASSIGN_OR_RETURN(
      config->head_dim, json.IntOr("head_dim", 1, 4096, config->hidden_size / config->num_heads));
  if (config->head_dim % 2 != 0) {
    return json.Error("head_dim",
                      absl::StrCat(config->head_dim, ", expected an even number (rotary pairs)"));
  }
  return absl::OkStatus();
}

// Llama-3 frequency scaling, as in Hugging Face's modeling_rope_utils. If a wavelength is above
// original / low_freq_factor, its frequency is divided by factor. If it is below original /
// high_freq_factor, its frequency is kept. Between the two, the results are blended.
absl::Status ReadLlama3Scaling(const JsonFile& scaling, kernels::RopeConfig* rope) {
  COPPICE_ASSIGN_OR_RETURN(rope->llama3_factor, scaling.PositiveNumber("factor"));
  COPPICE_ASSIGN_OR_RETURN(rope->llama3_low_freq_factor, scaling.PositiveNumber("low_freq_factor"));
  COPPICE_ASSIGN_OR_RETURN(rope->llama3_high_freq_factor,
                           scaling.PositiveNumber("high_freq_factor"));
  COPPICE_ASSIGN_OR_RETURN(rope->llama3_original_max_positions,
                           scaling.PositiveNumber("original_max_position_embeddings"));
  if (!(rope->llama3_high_freq_factor > rope->llama3_low_freq_factor)) {
    return scaling.Error("high_freq_factor", absl::StrCat(rope->llama3_high_freq_factor,
                                                          ", expected more than low_freq_factor (",
                                                          rope->llama3_low_freq_factor, ")"));
  }
  return absl::OkStatus();
}

absl::Status ReadRope(const JsonFile& json, ModelConfig* config) {
  kernels::RopeConfig& rope = config->rope;
  rope.head_dim = config->head_dim;
  rope.max_positions = config->max_positions;
  COPPICE_ASSIGN_OR_RETURN(rope.theta, json.PositiveNumberOr("rope_theta", rope.theta));
  // Newer folders call the same object rope_parameters and move rope_theta into it.
  const std::string field = json.Has("rope_scaling") ? "rope_scaling" : "rope_parameters";
  if (!json.Has(field)) return absl::OkStatus();
  COPPICE_ASSIGN_OR_RETURN(const JsonFile scaling, json.Object(field));
  COPPICE_ASSIGN_OR_RETURN(rope.theta, scaling.PositiveNumberOr("rope_theta", rope.theta));
  const std::string type_field =
      scaling.Has("rope_type") || !scaling.Has("type") ? "rope_type" : "type";
  COPPICE_ASSIGN_OR_RETURN(const std::string type, scaling.String(type_field));
  if (type == "default") return absl::OkStatus();
  if (type == "llama3") return ReadLlama3Scaling(scaling, &rope);
  if (type == "linear") {
    COPPICE_ASSIGN_OR_RETURN(rope.linear_factor, scaling.PositiveNumber("factor"));
    return absl::OkStatus();
  }
  return scaling.Error(type_field,
                       absl::StrCat(type, " is not served yet (default, linear, llama3 are)"));
}

// A sliding window of at least max_positions is full attention. A narrower one is refused.
absl::Status CheckFullAttention(const JsonFile& json, const Family& family,
                                const ModelConfig& config) {
  COPPICE_ASSIGN_OR_RETURN(const bool used, json.BoolOr("use_sliding_window", true));
  const bool absent = !json.Has("sliding_window") && !json.IsNull("sliding_window");
  COPPICE_ASSIGN_OR_RETURN(
      const int64_t window,
      json.IntOr("sliding_window", 0, int64_t{1} << 40,
                 absent && family.window > 0 ? family.window : config.max_positions));
  if (used && window < config.max_positions) {
    return json.Error("sliding_window",
                      absl::StrCat(absent ? "absent, which means " : "", window,
                                   ", is not served yet, expected null or at least "
                                   "max_position_embeddings (",
                                   config.max_positions, ")"));
  }
  COPPICE_ASSIGN_OR_RETURN(const std::vector<std::string> kinds, json.StringsOr("layer_types"));
  for (const std::string& kind : kinds) {
    if (kind != "full_attention")
      return json.Error("layer_types", kind + ", expected full_attention");
  }
  return absl::OkStatus();
}

absl::Status ReadChoices(const JsonFile& json, const Family& family, ModelConfig* config) {
  COPPICE_ASSIGN_OR_RETURN(const std::string activation, json.StringOr("hidden_act", "silu"));
  if (activation != "silu" && activation != "swish") {
    return json.Error("hidden_act", activation + ", expected silu");
  }
  COPPICE_ASSIGN_OR_RETURN(const bool bias, json.BoolOr("attention_bias", false));
  config->attention_bias = family.attention_bias.value_or(bias);
  config->output_bias = !family.attention_bias.has_value() && bias;
  COPPICE_ASSIGN_OR_RETURN(config->mlp_bias, json.BoolOr("mlp_bias", false));
  COPPICE_ASSIGN_OR_RETURN(config->tied_head, json.BoolOr("tie_word_embeddings", false));
  const int vocab = config->vocab_size;
  COPPICE_ASSIGN_OR_RETURN(const int64_t head, json.IntOr("draft_vocab_size", 1, vocab, vocab));
  config->draft_vocab_size = head < vocab ? static_cast<int>(head) : 0;
  if (config->tied_head && config->draft_vocab_size > 0) {
    return json.Error("tie_word_embeddings",
                      absl::StrCat("true, expected false since draft_vocab_size (", head,
                                   ") is less than vocab_size (", vocab, ")"));
  }
  COPPICE_ASSIGN_OR_RETURN(const double epsilon, json.PositiveNumber("rms_norm_eps"));
  config->norm_epsilon = static_cast<float>(epsilon);
  if (json.Has("quantization_config")) {
    return json.Error("quantization_config",
                      "quantised checkpoints are not served yet, expected none");
  }
  return absl::OkStatus();
}

absl::Status ReadDType(const JsonFile& json, ModelConfig* config) {
  const std::string field = json.Has("torch_dtype") ? "torch_dtype" : "dtype";
  COPPICE_ASSIGN_OR_RETURN(const std::string name, json.StringOr(field, "float32"));
  if (name == "float32") {
    config->checkpoint_dtype = kernels::DType::kF32;
  } else if (name == "bfloat16") {
    config->checkpoint_dtype = kernels::DType::kBF16;
  } else if (name == "float16") {
    config->checkpoint_dtype = kernels::DType::kF16;
  } else {
    return json.Error(field, name + ", expected float32, float16 or bfloat16");
  }
  return absl::OkStatus();
}

absl::Status JoinSpecialIds(const JsonFile& json, ModelConfig* config) {
  const int64_t last = config->vocab_size - 1;
  COPPICE_ASSIGN_OR_RETURN(const std::vector<int64_t> eos, json.IntsOr("eos_token_id", 0, last));
  for (const int64_t id : eos) {
    auto& ids = config->eos_ids;
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(static_cast<TokenId>(id));
  }
  return absl::OkStatus();
}

absl::StatusOr<JsonFile> ReadJson(const std::string& path) {
  COPPICE_ASSIGN_OR_RETURN(const std::string text,
                           model_files::ReadModelText(path, kMostSettingsBytes));
  return JsonFile::Parse(path, text);
}

}  // namespace

absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& dir) {
  std::error_code error;
  if (!std::filesystem::is_directory(dir, error) && !model_files::IsModelFile(dir)) {
    return absl::NotFoundError(absl::StrCat(
        dir, ": no such folder or file, expected a Hugging Face model folder or a GGUF file"));
  }
  COPPICE_ASSIGN_OR_RETURN(const JsonFile json, ReadJson(dir + "/config.json"));
  ModelConfig config;
  COPPICE_ASSIGN_OR_RETURN(const Family* family, ReadFamily(json));
  COPPICE_ASSIGN_OR_RETURN(config.model_type, json.StringOr("model_type", ""));
  COPPICE_RETURN_IF_ERROR(ParseSizes(json, &config));
  COPPICE_RETURN_IF_ERROR(ReadRope(json, &config));
  COPPICE_RETURN_IF_ERROR(CheckFullAttention(json, *family, config));
  COPPICE_RETURN_IF_ERROR(ReadChoices(json, *family, &config));
  COPPICE_RETURN_IF_ERROR(ReadDType(json, &config));
  COPPICE_RETURN_IF_ERROR(JoinSpecialIds(json, &config));
  const std::string generation = dir + "/generation_config.json";
  if (model_files::ModelTextExists(generation)) {
    COPPICE_ASSIGN_OR_RETURN(const JsonFile more, ReadJson(generation));
    COPPICE_RETURN_IF_ERROR(JoinSpecialIds(more, &config));
  }
  return config;
}

}  // namespace coppice::model
