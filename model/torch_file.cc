#include "model/torch_file.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "model/torch_pickle.h"
#include "model/zip_directory.h"

namespace coppice::model {
namespace {

constexpr absl::string_view kPickle = "data.pkl";

uint64_t BytesOfElement(absl::string_view dtype) {
  if (dtype == "F64" || dtype == "I64") return 8;
  if (dtype == "F32" || dtype == "I32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16") return 2;
  return 1;
}

// Elements, if they are in order without gaps.
std::optional<uint64_t> CountInOrder(const PickledTensor& tensor) {
  if (tensor.stride.size() != tensor.shape.size()) return std::nullopt;
  uint64_t count = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    const int64_t size = tensor.shape[i];
    if (size < 0 || (size != 0 && count > static_cast<uint64_t>(INT64_MAX / 8 / size)))
      return std::nullopt;
    if (size > 1 && static_cast<uint64_t>(tensor.stride[i]) != count) return std::nullopt;
    count *= static_cast<uint64_t>(size);
  }
  return count;
}

class TorchFile {
 public:
  TorchFile(const std::string& path, absl::Span<const char> file) : path_(path), file_(file) {}

  absl::StatusOr<std::vector<TensorInfo>> Parse();

 private:
  absl::Status Error(absl::string_view name, const std::string& what) const {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": ", absl::Utf8SafeCEscape(name.substr(0, 200)), ": ", what));
  }
  absl::string_view BytesOf(const ZipMember& member) const {
    return {file_.data() + member.begin, member.end - member.begin};
  }
  absl::StatusOr<ZipMember> FindPickle();
  absl::Status CheckByteOrder() const;
  absl::StatusOr<TensorInfo> Place(const PickledTensor& tensor) const;

  const std::string& path_;
  const absl::Span<const char> file_;
  std::map<std::string, ZipMember> members_;
  std::string folder_;  // of the members, with its slash
};

absl::StatusOr<ZipMember> TorchFile::FindPickle() {
  for (const auto& [name, member] : members_) {
    const size_t slash = name.find('/');
    if (slash == std::string::npos || name.substr(slash + 1) != kPickle) continue;
    folder_ = name.substr(0, slash + 1);
    return member;
  }
  return Error(kPickle, "missing, expected a file that torch.save wrote");
}

absl::Status TorchFile::CheckByteOrder() const {
  const auto order = members_.find(folder_ + "byteorder");
  if (order == members_.end() || BytesOf(order->second) == "little") return absl::OkStatus();
  return Error(order->first, "expected little");
}

absl::StatusOr<TensorInfo> TorchFile::Place(const PickledTensor& tensor) const {
  const auto storage = members_.find(absl::StrCat(folder_, "data/", tensor.storage));
  if (storage == members_.end())
    return Error(tensor.name, absl::StrCat("its storage ", tensor.storage, " is missing"));
  const std::optional<uint64_t> count = CountInOrder(tensor);
  if (!count) {
    return Error(tensor.name, absl::StrCat("strides of shape ", ShapeText(tensor.shape),
                                           " with gaps or in another order, expected values one "
                                           "after another"));
  }
  const uint64_t element = BytesOfElement(tensor.dtype);
  const uint64_t bytes = storage->second.end - storage->second.begin;
  const auto offset = static_cast<uint64_t>(tensor.offset);
  if (tensor.offset < 0 || offset > bytes / element || *count > bytes / element - offset) {
    return Error(tensor.name, absl::StrCat("ends beyond its storage of ", bytes, " bytes"));
  }
  TensorInfo info{tensor.name, tensor.dtype, tensor.shape};
  info.begin = storage->second.begin + offset * element;
  info.end = info.begin + *count * element;
  return info;
}

absl::StatusOr<std::vector<TensorInfo>> TorchFile::Parse() {
  COPPICE_ASSIGN_OR_RETURN(members_, ReadZipDirectory(path_, file_));
  COPPICE_ASSIGN_OR_RETURN(const ZipMember pickle, FindPickle());
  COPPICE_RETURN_IF_ERROR(CheckByteOrder());
  COPPICE_ASSIGN_OR_RETURN(const std::vector<PickledTensor> named,
                           ReadStateDict(absl::StrCat(path_, ": ", folder_, kPickle),
                                         file_.subspan(pickle.begin, pickle.end - pickle.begin)));
  std::map<std::string, TensorInfo> tensors;
  for (const PickledTensor& tensor : named) {
    COPPICE_ASSIGN_OR_RETURN(TensorInfo info, Place(tensor));
    if (!tensors.emplace(tensor.name, std::move(info)).second)
      return Error(tensor.name, "named twice");
  }
  std::vector<TensorInfo> sorted;
  for (auto& [name, info] : tensors) sorted.push_back(std::move(info));
  return sorted;
}

}  // namespace

absl::StatusOr<std::vector<TensorInfo>> ParseTorchFile(const std::string& path,
                                                       absl::Span<const char> file) {
  return TorchFile(path, file).Parse();
}

}  // namespace coppice::model
