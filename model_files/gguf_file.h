// A model in a GGUF file, mapped read-only: typed access to its metadata, and its tensors. A model
// split into files is opened by its first, NAME-00001-of-0000N.gguf. Used by model_files.cc, which
// presents it as a Hugging Face folder, and by model/gguf_checkpoint.cc. Immutable after Open.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/mapped_file.h"
#include "model_files/gguf_header.h"

namespace coppice::model_files {

class GgufFile {
 public:
  // Reads only the headers. Errors name the file, the key or tensor, and what was expected.
  static absl::StatusOr<GgufFile> Open(const std::string& path);

  const std::string& path() const { return parts_[0].path(); }
  // InvalidArgument "PATH: what".
  absl::Status Error(absl::string_view what) const;
  absl::Status KeyError(absl::string_view key, absl::string_view what) const;

  // Metadata. What is absent has an error, or the value of `absent`.
  bool Has(const std::string& key) const { return metadata_.count(key) > 0; }
  absl::StatusOr<int64_t> Int(const std::string& key, int64_t low, int64_t high) const;
  absl::StatusOr<int64_t> IntOr(const std::string& key, int64_t low, int64_t high,
                                int64_t absent) const;
  absl::StatusOr<double> Number(const std::string& key, double low, double high) const;
  absl::StatusOr<double> NumberOr(const std::string& key, double low, double high,
                                  double absent) const;
  absl::StatusOr<bool> BoolOr(const std::string& key, bool absent) const;
  // Texts are valid UTF-8. Views of a list are valid as long as this.
  absl::StatusOr<std::string> Text(const std::string& key) const;
  absl::StatusOr<std::string> TextOr(const std::string& key, const std::string& absent) const;
  absl::StatusOr<std::vector<absl::string_view>> Texts(const std::string& key) const;
  absl::StatusOr<std::vector<int32_t>> Ints(const std::string& key) const;  // a list of kI32
  absl::StatusOr<std::vector<float>> Floats(const std::string& key) const;  // a list of kF32

  // All tensors, sorted by name.
  const std::map<std::string, GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* FindTensor(const std::string& name) const;  // null: absent
  absl::Span<const char> Bytes(const GgufTensor& tensor) const;
  const MappedFile& part(const GgufTensor& tensor) const { return parts_[tensor.part]; }
  // The elements of a small tensor, which must be [size] of F32.
  absl::StatusOr<std::vector<float>> Vector(const std::string& name, int64_t size) const;

 private:
  GgufFile() = default;
  absl::Status AddPart(const std::string& path);
  absl::Status OpenParts(const std::string& path);
  absl::StatusOr<GgufValue> Find(const std::string& key) const;

  std::vector<MappedFile> parts_;
  std::map<std::string, GgufValue> metadata_;
  std::map<std::string, GgufTensor> tensors_;
};

}  // namespace coppice::model_files
