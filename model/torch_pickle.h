// The tensors that the pickle of a PyTorch state dict names. A pickle is a program: this reader knows
// the instructions and the few globals that such a dict consists of, and refuses every other by name,
// so that nothing of the file is ever run. The bytes are untrusted. Called by torch_file.cc. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace coppice::model {

struct PickledTensor {
  std::string name;
  std::string dtype;                   // as a safetensors file writes it: "F32", "BF16", "I64", ...
  std::string storage;                 // key of the member that has its values
  int64_t storage_size = 0;            // elements
  int64_t offset = 0;                  // of its first element
  std::vector<int64_t> shape, stride;  // elements
};

// where: names the pickle in errors. InvalidArgument: an instruction or global that a state dict does
// not need, a value that is no tensor, or a pickle that is cut or makes no sense.
absl::StatusOr<std::vector<PickledTensor>> ReadStateDict(const std::string& where,
                                                         absl::Span<const char> pickle);

}  // namespace coppice::model
