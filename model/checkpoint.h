// The tensors of a Hugging Face folder (model.safetensors, or the shards of
// model.safetensors.index.json), mapped read-only. weights.cc packs them from views and then
// releases their pages. Thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backend.h"
#include "model/mapped_file.h"
#include "model/safetensors.h"

namespace coppice::model {

class Checkpoint {
 public:
  // Reads only the headers. Errors name the file, the tensor and what was expected.
  static absl::StatusOr<Checkpoint> Open(const std::string& dir);

  // The view of tensor `name`, which must be [rows, columns] of F32, F16, BF16 or I8. Row i of I8
  // has element i of NAME_scale, [rows], as its factor; such a matrix is made in f32. Valid until
  // Release(name).
  absl::StatusOr<kernels::MatrixSource> Matrix(const std::string& name, int64_t rows,
                                               int64_t columns);
  // Elements [begin, end) of tensor `name`, which must be [size], as f32.
  absl::StatusOr<std::vector<float>> Vector(const std::string& name, int64_t size, int64_t begin,
                                            int64_t end);
  // The elements of tensor `name`, which must be [size] of I64.
  absl::StatusOr<std::vector<int64_t>> Integers(const std::string& name, int64_t size);
  // InvalidArgument that names the tensor and its file.
  absl::Status Error(const std::string& name, absl::string_view what) const;
  // The type in which the tensor is served: its own, or BF16 for I8.
  absl::StatusOr<kernels::DType> TensorDType(const std::string& name) const;
  // Releases the pages of a tensor. Its views are invalid afterwards.
  void Release(const std::string& name);

  // Tensors that nothing has read. Leaves out rotary_emb.inv_freq, which older folders have and
  // nothing reads.
  std::vector<std::string> UnusedNames() const;
  // Hashes config.json, the headers and samples of every tensor. Touches no mapped data page.
  absl::StatusOr<uint64_t> ComputeFingerprint() const;

 private:
  struct Tensor {
    TensorInfo info;
    int file = 0;
    bool used = false;
    // The data of views, if it is not that of the file: data that is not aligned for its type, or
    // I8.
    std::vector<char> copy;
  };
  explicit Checkpoint(std::string dir) : dir_(std::move(dir)) {}
  absl::Status AddFile(const std::string& path, std::map<std::string, Tensor>* tensors);
  absl::Status AddShards(const std::string& index_path);
  absl::StatusOr<Tensor*> Find(const std::string& name, const std::vector<int64_t>& shape);
  absl::StatusOr<kernels::MatrixSource> Scaled(Tensor* tensor, int64_t rows, int64_t columns);
  const char* Data(Tensor* tensor);
  absl::Span<const char> Bytes(const Tensor& tensor) const;

  std::string dir_;
  std::string listing_;  // the file that lists the tensors: for "missing" errors
  std::vector<MappedFile> files_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace coppice::model
