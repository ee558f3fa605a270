// Mistral: Llama with a sliding window in all layers, 4,096 positions if config.json does not say.
#include "base/status.h"
#include "model/families/config_fields.h"
#include "model/families/family.h"

namespace coppice::model {

Family MistralFamily() {
  return {"MistralForCausalLM", TensorNames(),
          [](const JsonFile& json, ModelConfig* config) -> absl::Status {
            COPPICE_RETURN_IF_ERROR(ReadLlamaParts(json, config));
            return SetWindowOfAll(json, 4096, config);
          }};
}

}  // namespace coppice::model
