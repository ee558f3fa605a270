// Phi-3 and Phi-4: Llama with q, k and v in one tensor and gate and up in another, a sliding window
// in all layers if config.json names one, and rotary positions of a part of a head in Phi-4-mini.
#include "base/status.h"
#include "model/families/config_fields.h"
#include "model/families/family.h"

namespace coppice::model {

Family Phi3Family() {
  TensorNames names;
  names.qkv = "self_attn.qkv_proj";
  names.gate_up = "mlp.gate_up_proj";
  return {"Phi3ForCausalLM", names, [](const JsonFile& json, ModelConfig* config) -> absl::Status {
            COPPICE_RETURN_IF_ERROR(ReadLlamaParts(json, config));
            return SetWindowOfAll(json, 0, config);
          }};
}

}  // namespace coppice::model
