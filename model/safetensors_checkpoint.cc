#include "model/safetensors_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/mapped_file.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "kernels/element.h"
#include "model/fingerprint.h"
#include "model/json_file.h"
#include "model/safetensors.h"
#include "model/torch_file.h"

namespace coppice::model {
namespace {

constexpr size_t kSampleBytes = 64;
constexpr char kIntegers[] = "I8";
constexpr char kScales[] = "_scale";  // suffix of the name of a matrix of integers

absl::StatusOr<kernels::DType> ServedDType(const MappedFile& file, const TensorInfo& info,
                                           absl::string_view expected = "F32, F16 or BF16") {
  for (const kernels::DType dtype :
       {kernels::DType::kF32, kernels::DType::kBF16, kernels::DType::kF16}) {
    if (info.dtype == kernels::DTypeName(dtype)) return dtype;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(file.path(), ": ", info.name, ": dtype ", info.dtype, ", expected ", expected));
}

// A shard must be a file in the folder of its index, never a path out of that folder.
bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && !absl::StrContains(name, '/') &&
         !absl::StrContains(name, std::string(1, '\0'));
}

class SafetensorsCheckpoint : public StoredTensors {
 public:
  explicit SafetensorsCheckpoint(std::string dir) : dir_(std::move(dir)) {}
  absl::Status ReadHeaders();

  bool Has(const std::string& name) const override { return tensors_.count(name) > 0; }
  absl::StatusOr<kernels::MatrixSource> Matrix(const std::string& name, int64_t rows,
                                               int64_t columns) override;
  absl::StatusOr<std::vector<float>> Vector(const std::string& name, int64_t size, int64_t begin,
                                            int64_t end) override;
  absl::StatusOr<std::vector<int64_t>> Integers(const std::string& name, int64_t size) override;
  absl::Status Error(const std::string& name, absl::string_view what) const override;
  absl::StatusOr<kernels::DType> TensorDType(const std::string& name) const override;
  BlockMatrices Blocks(const kernels::Backend&) const override { return {}; }
  void Release(const std::string& name) override;
  std::vector<std::string> UnusedNames() const override;
  absl::StatusOr<uint64_t> ComputeFingerprint() const override;
  std::vector<const TensorInfo*> Tensors() const override;
  const TensorInfo* FindTensor(const std::string& name) const override;
  absl::Span<const char> Bytes(const std::string& name) override;

 private:
  struct Tensor {
    TensorInfo info;
    int file = 0;
    bool used = false;
    // The data of views, if it is not that of the file: data that is not aligned for its type, or
    // I8.
    std::vector<char> copy;
  };
  absl::Status AddFile(const std::string& path, std::map<std::string, Tensor>* tensors);
  absl::Status AddShards(const std::string& index_path);
  absl::StatusOr<Tensor*> Find(const std::string& name, const std::vector<int64_t>& shape);
  absl::StatusOr<kernels::MatrixSource> Scaled(Tensor* tensor, int64_t rows, int64_t columns);
  const char* Data(Tensor* tensor);
  absl::Span<const char> BytesOf(const Tensor& tensor) const;

  std::string dir_;
  std::string listing_;  // the file that lists the tensors: for "missing" errors
  std::vector<MappedFile> files_;
  std::map<std::string, Tensor> tensors_;
};

absl::Status SafetensorsCheckpoint::ReadHeaders() {
  const std::string whole = dir_ + "/model.safetensors";
  for (const std::string& file : {whole, dir_ + "/pytorch_model.bin"}) {
    std::error_code error;
    if (std::filesystem::exists(file, error)) {
      listing_ = file;
      return AddFile(file, &tensors_);
    }
    const std::string index = file + ".index.json";
    if (std::filesystem::exists(index, error)) {
      listing_ = index;
      return AddShards(index);
    }
  }
  return absl::NotFoundError(absl::StrCat(whole,
                                          ": missing, expected it, model.safetensors.index.json or "
                                          "pytorch_model.bin in the model folder"));
}

absl::Status SafetensorsCheckpoint::AddFile(const std::string& path,
                                            std::map<std::string, Tensor>* tensors) {
  COPPICE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  COPPICE_ASSIGN_OR_RETURN(const std::vector<TensorInfo> infos,
                           absl::EndsWith(path, ".bin")
                               ? ParseTorchFile(path, file.bytes())
                               : ParseSafetensorsHeader(path, file.bytes()));
  const int number = static_cast<int>(files_.size());
  files_.push_back(std::move(file));
  for (const TensorInfo& info : infos) (*tensors)[info.name] = Tensor{info, number};
  return absl::OkStatus();
}

absl::Status SafetensorsCheckpoint::AddShards(const std::string& index_path) {
  COPPICE_ASSIGN_OR_RETURN(const JsonFile index, JsonFile::ReadFile(index_path, kMostTableBytes));
  COPPICE_ASSIGN_OR_RETURN(const JsonFile map, index.Object("weight_map"));
  std::map<std::string, std::map<std::string, Tensor>> shards;  // file name -> its tensors
  for (const std::string& name : map.names()) {
    COPPICE_ASSIGN_OR_RETURN(const std::string shard, map.String(name));
    if (!IsPlainFileName(shard))
      return map.Error(name, "expected the name of a file in the same folder");
    const auto [entry, is_new] = shards.try_emplace(shard);
    if (is_new) COPPICE_RETURN_IF_ERROR(AddFile(dir_ + "/" + shard, &entry->second));
    const auto tensor = entry->second.find(name);
    if (tensor == entry->second.end()) {
      return map.Error(name, absl::StrCat("listed in ", absl::Utf8SafeCEscape(shard),
                                          ", which does not hold it"));
    }
    tensors_[name] = tensor->second;
  }
  return absl::OkStatus();
}

absl::Span<const char> SafetensorsCheckpoint::BytesOf(const Tensor& tensor) const {
  return files_[tensor.file].bytes().subspan(tensor.info.begin,
                                             tensor.info.end - tensor.info.begin);
}

absl::StatusOr<SafetensorsCheckpoint::Tensor*> SafetensorsCheckpoint::Find(
    const std::string& name, const std::vector<int64_t>& shape) {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        listing_, ": ", name, ": missing, expected a tensor of shape ", ShapeText(shape)));
  }
  Tensor& tensor = found->second;
  if (tensor.info.shape != shape) {
    return absl::InvalidArgumentError(absl::StrCat(
        files_[tensor.file].path(), ": ", name, ": shape ", ShapeText(tensor.info.shape),
        ", expected ", ShapeText(shape), " by config.json"));
  }
  tensor.used = true;
  return &tensor;
}

const char* SafetensorsCheckpoint::Data(Tensor* tensor) {
  const absl::Span<const char> bytes = BytesOf(*tensor);
  if (reinterpret_cast<uintptr_t>(bytes.data()) % sizeof(float) == 0) return bytes.data();
  tensor->copy.assign(bytes.begin(), bytes.end());
  return tensor->copy.data();
}

absl::StatusOr<kernels::MatrixSource> SafetensorsCheckpoint::Matrix(const std::string& name,
                                                                    int64_t rows, int64_t columns) {
  COPPICE_ASSIGN_OR_RETURN(Tensor * tensor, Find(name, {rows, columns}));
  if (tensor->info.dtype == kIntegers) return Scaled(tensor, rows, columns);
  COPPICE_ASSIGN_OR_RETURN(const kernels::DType dtype,
                           ServedDType(files_[tensor->file], tensor->info, "F32, F16, BF16 or I8"));
  return kernels::MatrixSource{Data(tensor), dtype, rows, columns, /*row_stride=*/columns};
}

absl::StatusOr<kernels::MatrixSource> SafetensorsCheckpoint::Scaled(Tensor* tensor, int64_t rows,
                                                                    int64_t columns) {
  const std::string scales_name = tensor->info.name + kScales;
  COPPICE_ASSIGN_OR_RETURN(const std::vector<float> scales, Vector(scales_name, rows, 0, rows));
  const absl::Span<const char> bytes = BytesOf(*tensor);
  tensor->copy.resize(bytes.size() * sizeof(float));
  auto* values = reinterpret_cast<float*>(tensor->copy.data());
  for (int64_t row = 0; row < rows; ++row) {
    if (!std::isfinite(scales[row])) {
      return Error(scales_name,
                   absl::StrCat("row ", row, " is ", scales[row], ", expected a finite number"));
    }
    for (int64_t i = row * columns; i < (row + 1) * columns; ++i) {
      values[i] = scales[row] * static_cast<float>(static_cast<int8_t>(bytes[i]));
    }
  }
  return kernels::MatrixSource{values, kernels::DType::kF32, rows, columns, columns};
}

absl::StatusOr<std::vector<float>> SafetensorsCheckpoint::Vector(const std::string& name,
                                                                 int64_t size, int64_t begin,
                                                                 int64_t end) {
  COPPICE_ASSIGN_OR_RETURN(Tensor * tensor, Find(name, {size}));
  COPPICE_ASSIGN_OR_RETURN(const kernels::DType dtype,
                           ServedDType(files_[tensor->file], tensor->info));
  const char* data =
      BytesOf(*tensor).data() + begin * static_cast<int64_t>(kernels::DTypeSize(dtype));
  std::vector<float> values(end - begin);
  for (size_t i = 0; i < values.size(); ++i) values[i] = kernels::ElementToFloat(data, dtype, i);
  return values;
}

absl::StatusOr<std::vector<int64_t>> SafetensorsCheckpoint::Integers(const std::string& name,
                                                                     int64_t size) {
  COPPICE_ASSIGN_OR_RETURN(Tensor * tensor, Find(name, {size}));
  if (tensor->info.dtype != "I64")
    return Error(name, absl::StrCat("dtype ", tensor->info.dtype, ", expected I64"));
  std::vector<int64_t> values(size);
  std::memcpy(values.data(), BytesOf(*tensor).data(), values.size() * sizeof(int64_t));
  return values;
}

absl::Status SafetensorsCheckpoint::Error(const std::string& name, absl::string_view what) const {
  const auto found = tensors_.find(name);
  return absl::InvalidArgumentError(
      absl::StrCat(found == tensors_.end() ? listing_ : files_[found->second.file].path(), ": ",
                   name, ": ", what));
}

absl::StatusOr<kernels::DType> SafetensorsCheckpoint::TensorDType(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return absl::InvalidArgumentError(absl::StrCat(listing_, ": ", name, ": missing"));
  }
  const Tensor& tensor = found->second;
  if (tensor.info.dtype == kIntegers) return kernels::DType::kBF16;
  return ServedDType(files_[tensor.file], tensor.info);
}

void SafetensorsCheckpoint::Release(const std::string& name) {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return;
  files_[found->second.file].Drop(BytesOf(found->second));
  found->second.copy = {};
}

std::vector<std::string> SafetensorsCheckpoint::UnusedNames() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) {
    if (!tensor.used && !absl::EndsWith(name, "rotary_emb.inv_freq")) names.push_back(name);
  }
  return names;
}

absl::StatusOr<uint64_t> SafetensorsCheckpoint::ComputeFingerprint() const {
  Fingerprint fingerprint;
  COPPICE_ASSIGN_OR_RETURN(const std::string config,
                           ReadRegularFile(dir_ + "/config.json", kMostSettingsBytes));
  fingerprint.Add(config);
  for (const auto& [name, tensor] : tensors_) {  // sorted by name, whatever the shards
    const TensorInfo& info = tensor.info;
    fingerprint.Add(absl::StrCat(name, " ", info.dtype, " ", ShapeText(info.shape)));
    const uint64_t last = info.end - std::min<uint64_t>(kSampleBytes, info.end - info.begin);
    for (const uint64_t at : {info.begin, info.begin + (info.end - info.begin) / 2, last}) {
      fingerprint.Add(
          files_[tensor.file].Sample(at, std::min<uint64_t>(kSampleBytes, info.end - at)));
    }
  }
  return fingerprint.value();
}

std::vector<const TensorInfo*> SafetensorsCheckpoint::Tensors() const {
  std::vector<const TensorInfo*> all;
  for (const auto& [name, tensor] : tensors_) all.push_back(&tensor.info);
  return all;
}

const TensorInfo* SafetensorsCheckpoint::FindTensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second.info;
}

absl::Span<const char> SafetensorsCheckpoint::Bytes(const std::string& name) {
  Tensor& tensor = tensors_.at(name);
  tensor.used = true;
  return BytesOf(tensor);
}

}  // namespace

absl::StatusOr<std::unique_ptr<StoredTensors>> OpenSafetensorsCheckpoint(const std::string& dir) {
  auto checkpoint = std::make_unique<SafetensorsCheckpoint>(dir);
  COPPICE_RETURN_IF_ERROR(checkpoint->ReadHeaders());
  return checkpoint;
}

}  // namespace coppice::model
