// Gemma 3, text: as Gemma 2 with a norm of each q and k head, no caps, and a window in all layers
// but every sixth. Layers with a window have rotary positions of their own.
#include "base/status.h"
#include "model/families/config_fields.h"
#include "model/families/family.h"
#include "model/families/gemma.h"
#include "model/families/rope_fields.h"

namespace coppice::model {

Family Gemma3Family() {
  TensorNames names = GemmaNames();
  names.q_norm = "self_attn.q_norm";
  names.k_norm = "self_attn.k_norm";
  return {
      "Gemma3ForCausalLM", names, [](const JsonFile& json, ModelConfig* config) -> absl::Status {
        COPPICE_RETURN_IF_ERROR(ReadGemmaParts(json, /*scores_cap=*/0, /*logits_cap=*/0, config));
        config->qk_norm = true;
        const RopeFields all{.default_theta = 1e6, .kind = "full_attention"};
        const RopeFields local{
            .theta_field = "rope_local_base_freq", .kind = "sliding_attention", .scaled = false};
        for (const RopeFields& fields : {all, local}) {
          COPPICE_ASSIGN_OR_RETURN(kernels::RopeConfig rope, ReadRopeOf(json, fields, config));
          config->ropes.push_back(std::move(rope));
        }
        COPPICE_ASSIGN_OR_RETURN(const int64_t every,
                                 json.IntOr("sliding_window_pattern", 1, 4096, 6));
        return SetWindows(
            json, 4096, [every](int layer) { return (layer + 1) % every != 0; }, config,
            /*rope=*/1);
      }};
}

}  // namespace coppice::model
