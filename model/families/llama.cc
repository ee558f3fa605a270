// Llama: the family that others differ from.
#include "base/status.h"
#include "model/families/config_fields.h"
#include "model/families/family.h"

namespace coppice::model {

Family LlamaFamily() {
  return {"LlamaForCausalLM", TensorNames(),
          [](const JsonFile& json, ModelConfig* config) -> absl::Status {
            COPPICE_RETURN_IF_ERROR(ReadLlamaParts(json, config));
            COPPICE_ASSIGN_OR_RETURN(config->attention_bias, json.BoolOr("attention_bias", false));
            config->output_bias = config->attention_bias;
            return absl::OkStatus();
          }};
}

}  // namespace coppice::model
