#include "model/families/family.h"

namespace coppice::model {

absl::Span<const Family> Families() {
  static const Family kFamilies[] = {
      LlamaFamily(),    MistralFamily(), MixtralFamily(), Qwen2Family(),   Qwen3Family(),
      Qwen3MoeFamily(), GraniteFamily(), Gemma2Family(),  Gemma3Family(),  OptFamily(),
      SmolLm3Family(),  Phi3Family(),    Olmo2Family(),   GptNeoXFamily(), DFlashFamily(),
      DSparkFamily(),
  };
  return kFamilies;
}

}  // namespace coppice::model
