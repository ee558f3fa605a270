// The tensors of a Hugging Face folder (model.safetensors, or the shards of
// model.safetensors.index.json), mapped read-only. weights.cc takes views of them, packs, and gives
// the pages back. Thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/mapped_file.h"
#include "model/safetensors.h"

namespace coppice::model {

class Checkpoint {
 public:
  // Reads headers alone. Errors name the file, the tensor and what was expected.
  static absl::StatusOr<Checkpoint> Open(const std::string& dir);

  // The view of tensor `name`, which must be [rows, columns] of F32, F16 or BF16. Valid until
  // Release(name).
  absl::StatusOr<kernels::MatrixSource> Matrix(const std::string& name, int64_t rows,
                                               int64_t columns);
  // Elements [begin, end) of tensor `name`, which must be [size], as f32.
  absl::StatusOr<std::vector<float>> Vector(const std::string& name, int64_t size, int64_t begin,
                                            int64_t end);
  absl::StatusOr<kernels::DType> TensorDType(const std::string& name) const;
  // Gives the pages of a tensor back; its views are dead.
  void Release(const std::string& name);

  // Names never asked for, without rotary_emb.inv_freq (which older folders carry and nobody
  // reads).
  std::vector<std::string> UnusedNames() const;
  // Of config.json, the headers, and samples of every tensor; touches no mapped data page.
  absl::StatusOr<uint64_t> ComputeFingerprint() const;

 private:
  struct Tensor {
    TensorInfo info;
    int file = 0;
    bool used = false;
    std::vector<char> aligned;  // a copy, when the file holds it unaligned for its element
  };
  explicit Checkpoint(std::string dir) : dir_(std::move(dir)) {}
  absl::Status AddFile(const std::string& path, std::map<std::string, Tensor>* tensors);
  absl::Status AddShards(const std::string& index_path);
  absl::StatusOr<Tensor*> Find(const std::string& name, const std::vector<int64_t>& shape);
  const char* Data(Tensor* tensor);
  absl::Span<const char> Bytes(const Tensor& tensor) const;

  std::string dir_;
  std::string listing_;  // the file that says which tensors there are: for "missing" errors
  std::vector<MappedFile> files_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace coppice::model
