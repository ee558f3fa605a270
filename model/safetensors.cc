#include "model/safetensors.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "nlohmann/json.hpp"

namespace coppice::model {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kLargestHeader = 100'000'000;  // the limit of the reference implementation

struct Element {
  const char* dtype;
  uint64_t bytes;
};
constexpr Element kElements[] = {{"F64", 8},  {"F32", 4},     {"F16", 2},    {"BF16", 2},
                                 {"I64", 8},  {"U64", 8},     {"I32", 4},    {"U32", 4},
                                 {"I16", 2},  {"U16", 2},     {"I8", 1},     {"U8", 1},
                                 {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};

absl::Status FileError(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

absl::Status TensorError(const std::string& path, const std::string& name,
                         const std::string& what) {
  return FileError(path, absl::StrCat(absl::Utf8SafeCEscape(name.substr(0, 200)), ": ", what));
}

// Elements x bytes, or nullopt if that does not fit into 63 bits or a size is negative.
std::optional<uint64_t> ByteCount(const std::vector<int64_t>& shape, uint64_t element_bytes) {
  uint64_t total = element_bytes;
  for (const int64_t size : shape) {
    if (size < 0) return std::nullopt;
    if (size != 0 && total > static_cast<uint64_t>(INT64_MAX) / static_cast<uint64_t>(size))
      return std::nullopt;
    total *= static_cast<uint64_t>(size);
  }
  return total;
}

// A list of non-negative integers, or nullopt.
std::optional<std::vector<int64_t>> IntegerList(const Json& entry, const char* field) {
  const auto found = entry.find(field);
  if (found == entry.end() || !found->is_array()) return std::nullopt;
  std::vector<int64_t> list;
  for (const Json& item : *found) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
      return std::nullopt;
    list.push_back(item.get<int64_t>());
  }
  return list;
}

absl::StatusOr<TensorInfo> ParseTensor(const std::string& path, const std::string& name,
                                       const Json& entry, uint64_t data_begin, uint64_t file_size) {
  if (!entry.is_object()) return TensorError(path, name, "expected {dtype, shape, data_offsets}");
  TensorInfo tensor;
  tensor.name = name;
  const auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string())
    return TensorError(path, name, "dtype: expected a string");
  tensor.dtype = dtype->get<std::string>();
  const auto element = std::find_if(std::begin(kElements), std::end(kElements),
                                    [&](const Element& e) { return tensor.dtype == e.dtype; });
  if (element == std::end(kElements)) {
    return TensorError(path, name,
                       absl::StrCat("dtype: ", absl::Utf8SafeCEscape(tensor.dtype.substr(0, 40)),
                                    " is unknown, expected F32, F16 or BF16"));
  }
  auto shape = IntegerList(entry, "shape");
  if (!shape) return TensorError(path, name, "shape: expected a list of sizes");
  tensor.shape = *std::move(shape);
  const auto offsets = IntegerList(entry, "data_offsets");
  if (!offsets || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1]) {
    return TensorError(path, name, "data_offsets: expected [begin, end] with begin <= end");
  }
  const uint64_t begin = static_cast<uint64_t>((*offsets)[0]);
  const uint64_t end = static_cast<uint64_t>((*offsets)[1]);
  if (end > file_size - data_begin) {
    return TensorError(path, name,
                       absl::StrCat("data_offsets: end at byte ", end, " of ",
                                    file_size - data_begin, " data bytes, the file is truncated"));
  }
  const auto bytes = ByteCount(tensor.shape, element->bytes);
  if (!bytes || *bytes != end - begin) {
    return TensorError(path, name,
                       absl::StrCat("data_offsets: ", end - begin, " bytes, expected those of ",
                                    tensor.dtype, " ", ShapeText(tensor.shape)));
  }
  tensor.begin = data_begin + begin;
  tensor.end = data_begin + end;
  return tensor;
}

// The tensors, sorted by their places, must fill the data: the format has neither overlaps nor
// holes nor bytes after the last tensor.
absl::Status CheckNoGaps(const std::string& path, const std::vector<TensorInfo>& tensors,
                         uint64_t data_begin, uint64_t file_size) {
  uint64_t done = data_begin;
  std::string before;  // the tensor that ends there
  for (const TensorInfo& tensor : tensors) {
    if (tensor.begin < done) {
      return TensorError(path, tensor.name,
                         absl::StrCat("data_offsets: overlap those of ",
                                      absl::Utf8SafeCEscape(before.substr(0, 200))));
    }
    if (tensor.begin > done) {
      return TensorError(
          path, tensor.name,
          absl::StrCat("data_offsets: begin at byte ", tensor.begin - data_begin, ", but the ",
                       tensor.begin - done, " data bytes before it belong to no tensor"));
    }
    done = tensor.end;
    before = tensor.name;
  }
  if (done == file_size) return absl::OkStatus();
  return FileError(path,
                   absl::StrCat("the tensors end at byte ", done, ", but the file has ", file_size,
                                " bytes: ", file_size - done, " of them belong to no tensor"));
}

absl::StatusOr<uint64_t> HeaderLength(const std::string& path, absl::Span<const char> file) {
  if (file.size() < kLengthBytes) {
    return FileError(
        path,
        absl::StrCat(file.size(), " bytes, expected a safetensors header: the file is truncated"));
  }
  uint64_t length = 0;
  for (int i = 0; i < 8; ++i) length |= uint64_t{static_cast<unsigned char>(file[i])} << (8 * i);
  if (length > kLargestHeader) {
    return FileError(path, absl::StrCat("header length ", length, ", expected at most ",
                                        kLargestHeader, ": not a safetensors file"));
  }
  if (length > file.size() - kLengthBytes) {
    return FileError(path, absl::StrCat("header length ", length, ", but the file has ",
                                        file.size(), " bytes: it is truncated"));
  }
  return length;
}

}  // namespace

std::string ShapeText(absl::Span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape.subspan(0, 8), ", "),
                      shape.size() > 8 ? ", ...]" : "]");
}

absl::StatusOr<std::vector<TensorInfo>> ParseSafetensorsHeader(const std::string& path,
                                                               absl::Span<const char> file) {
  COPPICE_ASSIGN_OR_RETURN(const uint64_t length, HeaderLength(path, file));
  const char* text = file.data() + kLengthBytes;
  const Json header = Json::parse(text, text + length, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) return FileError(path, "header: not a JSON object");
  std::vector<TensorInfo> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    COPPICE_ASSIGN_OR_RETURN(TensorInfo tensor,
                             ParseTensor(path, name, entry, kLengthBytes + length, file.size()));
    tensors.push_back(std::move(tensor));
  }
  const auto by_place = [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  };
  std::sort(tensors.begin(), tensors.end(), by_place);
  COPPICE_RETURN_IF_ERROR(CheckNoGaps(path, tensors, kLengthBytes + length, file.size()));
  return tensors;
}

}  // namespace coppice::model
