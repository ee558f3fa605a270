// The tensors of a Hugging Face folder: model.safetensors, or the shards of
// model.safetensors.index.json. Called by checkpoint.cc.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "model/checkpoint.h"

namespace coppice::model {

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenSafetensorsCheckpoint(const std::string& dir);

}  // namespace coppice::model
