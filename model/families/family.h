// The families of models that are served. A family is a description: the name that config.json
// gives it, the names of its tensors, and a reader of its fields, which sets the parts of
// ModelConfig that it has. docs/extending.md shows how to add one.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "model/json_file.h"
#include "model/model_config.h"
#include "model/tensor_names.h"

namespace coppice::model {

struct Family {
  absl::string_view architecture;  // the only entry of `architectures` in config.json
  TensorNames names;
  // Sets the parts of the config. names, architecture and checkpoint_dtype are set.
  absl::Status (*read)(const JsonFile& json, ModelConfig* config);
};

// A file each.
Family LlamaFamily();
Family MistralFamily();
Family MixtralFamily();
Family Qwen2Family();
Family Qwen3Family();
Family Qwen3MoeFamily();
Family OptFamily();
Family Gemma2Family();
Family Gemma3Family();
Family Phi3Family();
Family SmolLm3Family();
Family GraniteFamily();
Family Olmo2Family();
Family GptNeoXFamily();
// EAGLE-3 heads by the names that their publishers give them.
Family Eagle3Family(absl::string_view architecture = "LlamaForCausalLMEagle3");
// Block drafters.
Family DFlashFamily();
Family DSparkFamily();

absl::Span<const Family> Families();

// The object that has the fields of the model: config.json itself, or transformer_layer_config in
// it.
absl::StatusOr<JsonFile> LayerFields(const JsonFile& json);

}  // namespace coppice::model
