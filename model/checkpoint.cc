#include "model/checkpoint.h"

#include "model/gguf_checkpoint.h"
#include "model/safetensors_checkpoint.h"
#include "model_files/model_files.h"

namespace coppice::model {

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& model) {
  if (model_files::IsModelFile(model)) return OpenGgufCheckpoint(model);
  return OpenSafetensorsCheckpoint(model);
}

}  // namespace coppice::model
