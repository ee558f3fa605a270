// The tensors of a Hugging Face folder: model.safetensors, or the shards of
// model.safetensors.index.json; if there are neither, pytorch_model.bin or its shards. Called by
// checkpoint.cc. Thread-compatible.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/checkpoint.h"
#include "model/safetensors.h"

namespace coppice::model {

// A checkpoint that also gives its tensors as they are stored.
class StoredTensors : public Checkpoint {
 public:
  virtual std::vector<const TensorInfo*> Tensors() const = 0;               // sorted by name
  virtual const TensorInfo* FindTensor(const std::string& name) const = 0;  // nullptr: missing
  // The bytes of a tensor that is there, which need not be aligned. Counts as reading it.
  virtual absl::Span<const char> Bytes(const std::string& name) = 0;
};

absl::StatusOr<std::unique_ptr<StoredTensors>> OpenSafetensorsCheckpoint(const std::string& dir);

}  // namespace coppice::model
