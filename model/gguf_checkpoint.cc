#include "model/gguf_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "kernels/block_format.h"
#include "kernels/element.h"
#include "model/fingerprint.h"
#include "model/json_file.h"
#include "model/safetensors.h"
#include "model_files/gguf_config.h"
#include "model_files/gguf_file.h"
#include "model_files/gguf_tensor_names.h"
#include "model_files/model_files.h"

namespace coppice::model {
namespace {

using kernels::DType;
using model_files::GgufFile;
using model_files::GgufTensor;

constexpr DType kElementTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

// The type of the tensor, if it is served.
std::optional<DType> Served(const GgufTensor& tensor) {
  const absl::string_view name = tensor.type->name;
  for (const DType dtype : kElementTypes) {
    if (name == kernels::DTypeName(dtype)) return dtype;
  }
  for (const kernels::BlockFormat& format : kernels::BlockFormats()) {
    if (name == format.name) return format.dtype;
  }
  return std::nullopt;
}

std::string ServedNames() {
  std::vector<std::string> names;
  for (const DType dtype : kElementTypes) names.push_back(kernels::DTypeName(dtype));
  for (const kernels::BlockFormat& format : kernels::BlockFormats()) names.push_back(format.name);
  return absl::StrJoin(names, ", ");
}

class GgufCheckpoint : public Checkpoint {
 public:
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const std::string& path) {
    COPPICE_ASSIGN_OR_RETURN(GgufFile file, GgufFile::Open(path));
    std::unique_ptr<GgufCheckpoint> checkpoint(new GgufCheckpoint(std::move(file)));
    COPPICE_RETURN_IF_ERROR(checkpoint->Check());
    return checkpoint;
  }

  bool Has(const std::string& name) const override {
    return file_.FindTensor(NameInFile(name)) != nullptr || IsLeftOut(name);
  }
  absl::StatusOr<kernels::MatrixSource> Matrix(const std::string& name, int64_t rows,
                                               int64_t columns) override;
  absl::StatusOr<std::vector<float>> Vector(const std::string& name, int64_t size, int64_t begin,
                                            int64_t end) override;
  absl::StatusOr<std::vector<int64_t>> Integers(const std::string& name, int64_t) override {
    return Error(name, "missing; a GGUF file has no such tensor");
  }
  absl::Status Error(const std::string& name, absl::string_view what) const override {
    return file_.Error(absl::StrCat("tensor ", NameInFile(name), ": ", what));
  }
  absl::StatusOr<DType> TensorDType(const std::string& name) const override;
  BlockMatrices Blocks(const kernels::Backend& backend) const override;
  void Release(const std::string& name) override;
  std::vector<std::string> UnusedNames() const override;
  absl::StatusOr<uint64_t> ComputeFingerprint() const override;

 private:
  explicit GgufCheckpoint(GgufFile file) : file_(std::move(file)) {}

  absl::Status Check();
  // That of the folder if the format has no such tensor.
  std::string NameInFile(const std::string& name) const;
  // The place of an expert's matrix in the tensor that has those of all.
  std::optional<int> PlaceInStack(const std::string& name) const;
  // The bytes of the folder's tensor.
  absl::Span<const char> BytesOf(const std::string& name, const GgufTensor& tensor) const;
  // of_folder: the shape of the folder's tensor.
  absl::StatusOr<const GgufTensor*> Find(const std::string& name,
                                         const std::vector<int64_t>& of_folder);
  // A bias that a Llama leaves out: others of its kind are there, or nobody would ask.
  bool IsLeftOut(const std::string& name) const;
  // Row `row` of the folder's tensor is this row of the file's.
  int64_t RowInFile(const std::string& name, int64_t row) const;

  GgufFile file_;
  std::string architecture_;
  int64_t head_dim_ = 0;
  int64_t experts_ = 0;
  std::set<std::string> used_;  // names in the file
  // The data of views, if it is not that of the file: rows in another order, or data that is not
  // aligned for its type. By name in the folder.
  std::map<std::string, std::vector<char>> copies_;
};

absl::Status GgufCheckpoint::Check() {
  for (const auto& [name, tensor] : file_.tensors()) {
    if (Served(tensor)) continue;
    return file_.Error(absl::StrCat("tensor ", model_files::ShownName(name), ": type ",
                                    tensor.type->name, " is not served yet (", ServedNames(),
                                    " are)"));
  }
  COPPICE_ASSIGN_OR_RETURN(architecture_, model_files::GgufArchitecture(file_));
  const std::string path = file_.path() + "/config.json";
  COPPICE_ASSIGN_OR_RETURN(const std::string text,
                           model_files::ReadModelText(path, kMostSettingsBytes));
  COPPICE_ASSIGN_OR_RETURN(const JsonFile config, JsonFile::Parse(path, text));
  COPPICE_ASSIGN_OR_RETURN(head_dim_, config.Int("head_dim", 1, INT32_MAX));
  for (const char* field : {"num_local_experts", "num_experts"}) {
    COPPICE_ASSIGN_OR_RETURN(experts_, config.IntOr(field, 1, INT32_MAX, experts_));
  }
  return absl::OkStatus();
}

std::string GgufCheckpoint::NameInFile(const std::string& name) const {
  const std::string found = model_files::GgufTensorName(architecture_, name);
  if (found.empty()) return name;
  if (!model_files::ExpertOf(name) || file_.FindTensor(found) != nullptr) return found;
  const std::string of_one = model_files::GgufExpertName(name);
  return file_.FindTensor(of_one) == nullptr ? found : of_one;
}

std::optional<int> GgufCheckpoint::PlaceInStack(const std::string& name) const {
  const std::string stacked = model_files::GgufTensorName(architecture_, name);
  return NameInFile(name) == stacked ? model_files::ExpertOf(name) : std::nullopt;
}

absl::Span<const char> GgufCheckpoint::BytesOf(const std::string& name,
                                               const GgufTensor& tensor) const {
  const absl::Span<const char> all = file_.Bytes(tensor);
  const std::optional<int> place = PlaceInStack(name);
  if (!place) return all;
  const size_t each = all.size() / tensor.shape[0];
  return all.subspan(*place * each, each);
}

absl::StatusOr<const GgufTensor*> GgufCheckpoint::Find(const std::string& name,
                                                       const std::vector<int64_t>& of_folder) {
  const std::string in_file = NameInFile(name);
  std::vector<int64_t> shape = of_folder;
  if (PlaceInStack(name)) shape.insert(shape.begin(), experts_);
  const GgufTensor* tensor = file_.FindTensor(in_file);
  if (tensor == nullptr)
    return Error(name, absl::StrCat("missing, expected a tensor of shape ", ShapeText(shape)));
  if (tensor->shape != shape) {
    return Error(name, absl::StrCat("shape ", ShapeText(tensor->shape), ", expected ",
                                    ShapeText(shape), " by the metadata"));
  }
  used_.insert(in_file);
  return tensor;
}

bool GgufCheckpoint::IsLeftOut(const std::string& name) const {
  if (architecture_ != "llama" || !absl::EndsWith(name, ".bias") ||
      file_.FindTensor(NameInFile(name)) != nullptr)
    return false;
  const std::string weight = name.substr(0, name.size() - 4) + "weight";
  return file_.FindTensor(NameInFile(weight)) != nullptr;
}

int64_t GgufCheckpoint::RowInFile(const std::string& name, int64_t row) const {
  if (!model_files::HasInterleavedHeads(architecture_, name)) return row;
  const int64_t in_head = row % head_dim_;
  return row - in_head + model_files::InterleavedRow(in_head, head_dim_);
}

absl::StatusOr<kernels::MatrixSource> GgufCheckpoint::Matrix(const std::string& name, int64_t rows,
                                                             int64_t columns) {
  COPPICE_ASSIGN_OR_RETURN(const GgufTensor* tensor, Find(name, {rows, columns}));
  const DType dtype = *Served(*tensor);
  absl::Span<const char> bytes = BytesOf(name, *tensor);
  const bool reorders = model_files::HasInterleavedHeads(architecture_, name);
  if (reorders && rows % head_dim_ != 0) {
    return Error(name, absl::StrCat(rows, " rows, expected a multiple of ", head_dim_,
                                    ", the size of a head"));
  }
  const bool aligned = reinterpret_cast<uintptr_t>(bytes.data()) % sizeof(float) == 0;
  if (reorders || !aligned) {
    std::vector<char>& copy = copies_[name];
    copy.resize(bytes.size());
    const size_t row_bytes = bytes.size() / rows;
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(copy.data() + row * row_bytes, bytes.data() + RowInFile(name, row) * row_bytes,
                  row_bytes);
    }
    bytes = copy;
  }
  return kernels::MatrixSource{bytes.data(), dtype, rows, columns, /*row_stride=*/columns};
}

absl::StatusOr<std::vector<float>> GgufCheckpoint::Vector(const std::string& name, int64_t size,
                                                          int64_t begin, int64_t end) {
  std::vector<float> values(end - begin);
  if (IsLeftOut(name)) return values;
  COPPICE_ASSIGN_OR_RETURN(const GgufTensor* tensor, Find(name, {size}));
  const DType dtype = *Served(*tensor);
  if (kernels::IsBlockFormat(dtype)) {
    return Error(name, absl::StrCat("type ", tensor->type->name,
                                    ", expected F32, F16 or BF16, as it is no matrix"));
  }
  const float added = model_files::AddedToGain(architecture_, name);
  const char* data = file_.Bytes(*tensor).data();
  for (int64_t i = begin; i < end; ++i)
    values[i - begin] = kernels::ElementToFloat(data, dtype, RowInFile(name, i)) - added;
  return values;
}

absl::StatusOr<DType> GgufCheckpoint::TensorDType(const std::string& name) const {
  const GgufTensor* tensor = file_.FindTensor(NameInFile(name));
  if (tensor == nullptr) return Error(name, "missing");
  const DType dtype = *Served(*tensor);
  return kernels::IsBlockFormat(dtype) ? DType::kBF16 : dtype;
}

BlockMatrices GgufCheckpoint::Blocks(const kernels::Backend& backend) const {
  BlockMatrices blocks;
  std::set<std::string> formats;
  for (const auto& [name, tensor] : file_.tensors()) {
    const DType dtype = *Served(tensor);
    if (!kernels::IsBlockFormat(dtype) || !backend.stores(dtype)) continue;
    const auto bytes = static_cast<int64_t>(tensor.end - tensor.begin);
    blocks.bytes += bytes;
    blocks.elements += bytes / tensor.type->bytes * tensor.type->values;
    formats.insert(tensor.type->name);
  }
  blocks.formats.assign(formats.begin(), formats.end());
  return blocks;
}

void GgufCheckpoint::Release(const std::string& name) {
  const GgufTensor* tensor = file_.FindTensor(NameInFile(name));
  if (tensor == nullptr) return;
  file_.part(*tensor).Drop(BytesOf(name, *tensor));
  copies_.erase(name);
}

std::vector<std::string> GgufCheckpoint::UnusedNames() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : file_.tensors()) {
    if (used_.count(name) == 0 && !absl::StartsWith(name, "rope_")) names.push_back(name);
  }
  return names;
}

absl::StatusOr<uint64_t> GgufCheckpoint::ComputeFingerprint() const {
  constexpr uint64_t kSampleBytes = 64;
  Fingerprint fingerprint;
  COPPICE_ASSIGN_OR_RETURN(
      const std::string config,
      model_files::ReadModelText(file_.path() + "/config.json", kMostSettingsBytes));
  fingerprint.Add(config);
  for (const auto& [name, tensor] : file_.tensors()) {
    fingerprint.Add(absl::StrCat(name, " ", tensor.type->name, " ", ShapeText(tensor.shape)));
    const uint64_t size = std::min(kSampleBytes, tensor.end - tensor.begin);
    const uint64_t middle = tensor.begin + (tensor.end - tensor.begin - size) / 2;
    for (const uint64_t at : {tensor.begin, middle, tensor.end - size})
      fingerprint.Add(file_.part(tensor).Sample(at, size));
  }
  return fingerprint.value();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenGgufCheckpoint(const std::string& path) {
  return GgufCheckpoint::Open(path);
}

}  // namespace coppice::model
