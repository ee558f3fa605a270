#include "model/families/family.h"

namespace coppice::model {

absl::Span<const Family> Families() {
  static const Family kFamilies[] = {
      LlamaFamily(),
      MistralFamily(),
      MixtralFamily(),
      Qwen2Family(),
      Qwen3Family(),
      Qwen3MoeFamily(),
      GraniteFamily(),
      Gemma2Family(),
      Gemma3Family(),
      OptFamily(),
      SmolLm3Family(),
      Phi3Family(),
      Olmo2Family(),
      GptNeoXFamily(),
      Eagle3Family(),
      Eagle3Family("Eagle3LlamaForCausalLM"),
      Eagle3Family("Eagle3Speculator"),
      Eagle3Family("Eagle3DraftModel"),
      DFlashFamily(),
      DSparkFamily(),
  };
  return kFamilies;
}

absl::StatusOr<JsonFile> LayerFields(const JsonFile& json) {
  const std::string field = "transformer_layer_config";
  if (!json.Has(field)) return json;
  return json.Object(field);
}

}  // namespace coppice::model
