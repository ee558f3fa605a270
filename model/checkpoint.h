// The tensors of a model, by the names that they have in a Hugging Face folder: of such a folder
// (safetensors_checkpoint.h, quantised_checkpoint.h), or of a GGUF file (gguf_checkpoint.h). Mapped read-only; weights.cc
// packs them from views and then releases their pages. Thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backend.h"

namespace coppice::model {

// The matrices of a checkpoint that are in block formats.
struct BlockMatrices {
  int64_t elements = 0;
  int64_t bytes = 0;
  std::vector<std::string> formats;  // their names, sorted
};

class Checkpoint {
 public:
  // model: a folder, or a file. Reads only the headers. Errors name the file, the tensor and what
  // was expected.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const std::string& model);
  virtual ~Checkpoint() = default;

  // Whether there is such a tensor.
  virtual bool Has(const std::string& name) const = 0;
  // The view of tensor `name`, which must be [rows, columns]. In a folder its type is F32, F16,
  // BF16 or I8; row i of I8 has element i of NAME_scale, [rows], as its factor, and such a matrix
  // is made in f32. In a GGUF file or a quantised folder its type may also be a block format. Valid
  // until Release(name).
  virtual absl::StatusOr<kernels::MatrixSource> Matrix(const std::string& name, int64_t rows,
                                                       int64_t columns) = 0;
  // Whether there is such a matrix, without reading its values.
  virtual absl::Status CheckMatrix(const std::string& name, int64_t rows, int64_t columns) {
    return Matrix(name, rows, columns).status();
  }
  // Elements [begin, end) of tensor `name`, which must be [size], as f32.
  virtual absl::StatusOr<std::vector<float>> Vector(const std::string& name, int64_t size,
                                                    int64_t begin, int64_t end) = 0;
  // The elements of tensor `name`, which must be [size] of I64.
  virtual absl::StatusOr<std::vector<int64_t>> Integers(const std::string& name, int64_t size) = 0;
  // InvalidArgument that names the tensor and its file.
  virtual absl::Status Error(const std::string& name, absl::string_view what) const = 0;
  // The type in which the tensor is served if all are served in one: its own, or BF16 for I8 and
  // block formats.
  virtual absl::StatusOr<kernels::DType> TensorDType(const std::string& name) const = 0;
  // Of those formats that the backend stores.
  virtual BlockMatrices Blocks(const kernels::Backend& backend) const = 0;
  // Releases the pages of a tensor. Its views are invalid afterwards.
  virtual void Release(const std::string& name) = 0;

  // Tensors that nothing has read. Leaves out those that only say how positions rotate, which
  // nothing reads here.
  virtual std::vector<std::string> UnusedNames() const = 0;
  // Hashes the configuration, the headers and samples of every tensor. Touches no mapped data page.
  virtual absl::StatusOr<uint64_t> ComputeFingerprint() const = 0;
};

}  // namespace coppice::model
