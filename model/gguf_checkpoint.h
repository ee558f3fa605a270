// The tensors of a GGUF file as those of the Hugging Face folder of the same model: their names, the
// order of the rows of query and key heads, the gains of Gemma, zeros for a bias that is left out.
// Called by checkpoint.cc.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "model/checkpoint.h"

namespace coppice::model {

// Refuses a file that has a tensor of a type that is not served.
absl::StatusOr<std::unique_ptr<Checkpoint>> OpenGgufCheckpoint(const std::string& path);

}  // namespace coppice::model
