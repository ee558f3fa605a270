// The tensors of a draft that takes the states of its target (ModelConfig::states): under one name,
// whatever its publisher calls them, and those that it leaves to its target, which are the target's.
// Called where such a draft is loaded or checked. Thread-compatible.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "model/checkpoint.h"
#include "model/model_config.h"

namespace coppice::model {

// Whether the safetensors files of this folder have a tensor of this name, or one whose name ends
// with a dot and this. False for a folder that cannot be read.
bool HasTensor(const std::string& dir, const std::string& name);

// Checkpoint::Open of a draft, or of any other model. Tensors of a layer are "layers.0.NAME", also if
// they are "midlayer.NAME" in the folder; a prefix "model." of names may be there or not. target: the
// folder or file of the target, whose embedding and head stand for those that the draft does not
// have; "": none do.
absl::StatusOr<std::unique_ptr<Checkpoint>> OpenCheckpoint(const std::string& dir,
                                                           const ModelConfig& config,
                                                           const std::string& target);

}  // namespace coppice::model
