// Gemma 2: a window of 4,096 positions in every second layer, caps of scores and logits.
#include "base/status.h"
#include "model/families/config_fields.h"
#include "model/families/family.h"
#include "model/families/gemma.h"
#include "model/families/rope_fields.h"

namespace coppice::model {

Family Gemma2Family() {
  return {
      "Gemma2ForCausalLM", GemmaNames(),
      [](const JsonFile& json, ModelConfig* config) -> absl::Status {
        COPPICE_RETURN_IF_ERROR(ReadGemmaParts(json, /*scores_cap=*/50, /*logits_cap=*/30, config));
        COPPICE_RETURN_IF_ERROR(ReadRope(json, config));
        return SetWindows(
            json, 4096, [](int layer) { return layer % 2 == 0; }, config);
      }};
}

}  // namespace coppice::model
