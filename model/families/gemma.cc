#include "model/families/gemma.h"

#include <cmath>
#include <string>

#include "base/status.h"
#include "kernels/element.h"
#include "model/families/config_fields.h"

namespace coppice::model {
namespace {

// null: no cap.
absl::Status ReadCap(const JsonFile& json, const std::string& field, float absent, float* cap) {
  const double missing = json.IsNull(field) ? 0 : absent;
  COPPICE_ASSIGN_OR_RETURN(const double value, json.PositiveNumberOr(field, missing));
  *cap = static_cast<float>(value);
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadGemmaParts(const JsonFile& json, float scores_cap, float logits_cap,
                            ModelConfig* config) {
  COPPICE_RETURN_IF_ERROR(ReadSizes(json, config));
  COPPICE_ASSIGN_OR_RETURN(const double epsilon, json.PositiveNumberOr("rms_norm_eps", 1e-6));
  config->norm_epsilon = static_cast<float>(epsilon);
  config->norm_place = NormPlace::kAround;
  config->gain_offset = 1;
  COPPICE_RETURN_IF_ERROR(ReadActivation(json, "hidden_activation", "gelu_pytorch_tanh", config));
  COPPICE_ASSIGN_OR_RETURN(config->attention_bias, json.BoolOr("attention_bias", false));
  config->output_bias = config->attention_bias;
  COPPICE_ASSIGN_OR_RETURN(const double scalar,
                           json.PositiveNumberOr("query_pre_attn_scalar", 256));
  config->attention_scale = static_cast<float>(1 / std::sqrt(scalar));
  COPPICE_RETURN_IF_ERROR(
      ReadCap(json, "attn_logit_softcapping", scores_cap, &config->attention_softcap));
  COPPICE_RETURN_IF_ERROR(
      ReadCap(json, "final_logit_softcapping", logits_cap, &config->logit_softcap));
  COPPICE_RETURN_IF_ERROR(Require(json, "use_bidirectional_attention", false));
  // Transformers multiplies by the root in the type of the weights.
  const float root = std::sqrt(static_cast<float>(config->hidden_size));
  const bool rounded = config->checkpoint_dtype == kernels::DType::kBF16;
  config->embedding_scale = rounded ? kernels::Bf16ToFloat(kernels::FloatToBf16(root)) : root;
  COPPICE_ASSIGN_OR_RETURN(config->tied_head, json.BoolOr("tie_word_embeddings", true));
  return absl::OkStatus();
}

}  // namespace coppice::model
