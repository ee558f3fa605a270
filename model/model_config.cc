#include "model/model_config.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "model/draft_checkpoint.h"
#include "model/families/family.h"
#include "model/json_file.h"
#include "model/quantisation.h"
#include "model_files/model_files.h"

namespace coppice::model {
namespace {

absl::StatusOr<const Family*> FindFamily(const JsonFile& json) {
  COPPICE_ASSIGN_OR_RETURN(const std::vector<std::string> architectures,
                           json.StringsOr("architectures"));
  if (architectures.size() != 1) return json.Error("architectures", "expected a list of one name");
  for (const Family& family : Families()) {
    if (architectures[0] == family.architecture) return &family;
  }
  const auto name = [](std::string* out, const Family& family) {
    absl::StrAppend(out, family.architecture);
  };
  return json.Error("architectures", absl::StrCat(architectures[0], " is not served yet (",
                                                  absl::StrJoin(Families(), ", ", name), " are)"));
}

// A layer that config.json calls sliding must have the window, unless that hides nothing.
absl::Status CheckLayerTypes(const JsonFile& json, const ModelConfig& config) {
  COPPICE_ASSIGN_OR_RETURN(const std::vector<std::string> kinds, json.StringsOr("layer_types"));
  COPPICE_ASSIGN_OR_RETURN(const int64_t window,
                           json.IntOr("sliding_window", 0, int64_t{1} << 40, 0));
  for (size_t i = 0; i < kinds.size(); ++i) {
    const bool slides = kinds[i] == "sliding_attention";
    if (!slides && kinds[i] != "full_attention") {
      return json.Error("layer_types", kinds[i] + ", expected full_attention or sliding_attention");
    }
    const bool has = i < config.layers.size() && config.layers[i].window > 0;
    if (!slides || has || window >= config.max_positions) continue;
    return json.Error("layer_types", absl::StrCat("layer ", i, " is sliding_attention, but ",
                                                  config.architecture, " has no window there"));
  }
  return absl::OkStatus();
}

absl::Status ReadHead(const JsonFile& json, ModelConfig* config) {
  // A draft that takes states has a head of its own or its target's, whatever the field says.
  if (!config->takes_states()) {
    COPPICE_ASSIGN_OR_RETURN(config->tied_head,
                             json.BoolOr("tie_word_embeddings", config->tied_head));
  }
  const int vocab = config->vocab_size;
  COPPICE_ASSIGN_OR_RETURN(const int64_t head, json.IntOr("draft_vocab_size", 1, vocab, vocab));
  config->draft_vocab_size = head < vocab ? static_cast<int>(head) : 0;
  if (config->tied_head && config->draft_vocab_size > 0) {
    return json.Error("tie_word_embeddings",
                      absl::StrCat("true, expected false since draft_vocab_size (", head,
                                   ") is less than vocab_size (", vocab, ")"));
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

// Only its tensors tell a head that calls itself a Llama, as the authors' do.
bool IsNamelessHead(const std::string& dir, const JsonFile& json, const Family& family) {
  return family.architecture == "LlamaForCausalLM" && !model_files::IsModelFile(dir) &&
         json.Int("num_hidden_layers", 1, 1).ok() && HasTensor(dir, "fc.weight");
}

absl::StatusOr<JsonFile> ReadJson(const std::string& path) {
  COPPICE_ASSIGN_OR_RETURN(const std::string text,
                           model_files::ReadModelText(path, kMostSettingsBytes));
  return JsonFile::Parse(path, text);
}

absl::StatusOr<ModelConfig> ReadAs(const Family& family, const JsonFile& json) {
  ModelConfig config;
  config.architecture = std::string(family.architecture);
  config.names = family.names;
  COPPICE_ASSIGN_OR_RETURN(config.model_type, json.StringOr("model_type", ""));
  COPPICE_ASSIGN_OR_RETURN(const JsonFile layer, LayerFields(json));
  COPPICE_ASSIGN_OR_RETURN(config.vocab_size, layer.Int("vocab_size", 1, 1 << 24));
  COPPICE_RETURN_IF_ERROR(ReadDType(json, &config));
  COPPICE_RETURN_IF_ERROR(ReadQuantisation(json).status());
  COPPICE_RETURN_IF_ERROR(family.read(json, &config));
  for (kernels::RopeConfig& rope : config.ropes) rope.max_positions = config.max_positions;
  COPPICE_RETURN_IF_ERROR(CheckLayerTypes(layer, config));
  COPPICE_RETURN_IF_ERROR(ReadHead(json, &config));
  COPPICE_RETURN_IF_ERROR(JoinSpecialIds(json, &config));
  return config;
}

}  // namespace

absl::StatusOr<ModelConfig> ReadModelConfig(const JsonFile& json) {
  COPPICE_ASSIGN_OR_RETURN(const Family* family, FindFamily(json));
  return ReadAs(*family, json);
}

absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& dir) {
  std::error_code error;
  if (!std::filesystem::is_directory(dir, error) && !model_files::IsModelFile(dir)) {
    return absl::NotFoundError(absl::StrCat(
        dir, ": no such folder or file, expected a Hugging Face model folder or a GGUF file"));
  }
  COPPICE_ASSIGN_OR_RETURN(const JsonFile json, ReadJson(dir + "/config.json"));
  COPPICE_ASSIGN_OR_RETURN(const Family* family, FindFamily(json));
  const bool is_head = IsNamelessHead(dir, json, *family);
  COPPICE_ASSIGN_OR_RETURN(ModelConfig config, ReadAs(is_head ? Eagle3Family() : *family, json));
  if (config.states.use == TargetStates::Use::kBesideEmbedding)
    config.qk_norm = HasTensor(dir, "self_attn.q_norm.weight");
  const std::string generation = dir + "/generation_config.json";
  if (model_files::ModelTextExists(generation)) {
    COPPICE_ASSIGN_OR_RETURN(const JsonFile more, ReadJson(generation));
    COPPICE_RETURN_IF_ERROR(JoinSpecialIds(more, &config));
  }
  return config;
}

}  // namespace coppice::model
