// Granite 3, dense: Llama with four multipliers.
#include "base/status.h"
#include "model/families/config_fields.h"
#include "model/families/family.h"

namespace coppice::model {

Family GraniteFamily() {
  return {"GraniteForCausalLM", TensorNames(),
          [](const JsonFile& json, ModelConfig* config) -> absl::Status {
            COPPICE_RETURN_IF_ERROR(ReadLlamaParts(json, config));
            COPPICE_ASSIGN_OR_RETURN(config->attention_bias, json.BoolOr("attention_bias", false));
            config->output_bias = config->attention_bias;
            config->attention_scale = 1;
            float divisor = 1;
            COPPICE_RETURN_IF_ERROR(
                ReadMultiplier(json, "embedding_multiplier", &config->embedding_scale));
            COPPICE_RETURN_IF_ERROR(
                ReadMultiplier(json, "attention_multiplier", &config->attention_scale));
            COPPICE_RETURN_IF_ERROR(
                ReadMultiplier(json, "residual_multiplier", &config->residual_scale));
            COPPICE_RETURN_IF_ERROR(ReadMultiplier(json, "logits_scaling", &divisor));
            config->logit_scale = 1 / divisor;
            return absl::OkStatus();
          }};
}

}  // namespace coppice::model
