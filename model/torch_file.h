// Finds the tensors of a file that torch.save wrote of a state dict (pytorch_model.bin), a ZIP archive
// with a pickle that names them and a member for each storage. The bytes are untrusted, and nothing of
// the pickle is run (torch_pickle.h). Called by safetensors_checkpoint.cc, which maps the file. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/safetensors.h"

namespace coppice::model {

// `file` is the whole file; of its tensors nothing is read. Sorted by name. Tensors may share a
// storage. InvalidArgument names PATH, and the tensor or member and what was expected: a tensor whose
// values do not lie one after another, one that ends beyond its storage, two of one name, and what
// ReadZipDirectory and ReadStateDict refuse.
absl::StatusOr<std::vector<TensorInfo>> ParseTorchFile(const std::string& path,
                                                       absl::Span<const char> file);

}  // namespace coppice::model
