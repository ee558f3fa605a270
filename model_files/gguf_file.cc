#include "model_files/gguf_file.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/utf8_check.h"

namespace coppice::model_files {
namespace {

constexpr int64_t kMostParts = 999;

template <typename T>
T Load(absl::Span<const char> bytes, size_t at = 0) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// The value as an integer; nullopt if it is none, or beyond 63 bits.
std::optional<int64_t> AsInt(const GgufValue& value) {
  if (value.is_list) return std::nullopt;
  switch (value.kind) {
    case GgufKind::kU8:
      return Load<uint8_t>(value.bytes);
    case GgufKind::kI8:
      return Load<int8_t>(value.bytes);
    case GgufKind::kU16:
      return Load<uint16_t>(value.bytes);
    case GgufKind::kI16:
      return Load<int16_t>(value.bytes);
    case GgufKind::kU32:
      return Load<uint32_t>(value.bytes);
    case GgufKind::kI32:
      return Load<int32_t>(value.bytes);
    case GgufKind::kI64:
      return Load<int64_t>(value.bytes);
    case GgufKind::kU64: {
      const auto number = Load<uint64_t>(value.bytes);
      if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
      return static_cast<int64_t>(number);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> AsNumber(const GgufValue& value) {
  if (!value.is_list && value.kind == GgufKind::kF32) {
    // The writer had a decimal number. The shortest one that gives the same f32 is meant: 1e-5 and
    // not 9.99999975e-06.
    const auto number = Load<float>(value.bytes);
    for (int digits = 6; digits < 9; ++digits) {
      const double shorter = std::strtod(absl::StrFormat("%.*g", digits, number).c_str(), nullptr);
      if (static_cast<float>(shorter) == number) return shorter;
    }
    return number;
  }
  if (!value.is_list && value.kind == GgufKind::kF64) return Load<double>(value.bytes);
  if (const auto number = AsInt(value)) return static_cast<double>(*number);
  return std::nullopt;
}

absl::string_view TextAt(absl::Span<const char> bytes) {
  return absl::string_view(bytes.data() + sizeof(uint64_t), Load<uint64_t>(bytes));
}

std::string PartName(absl::string_view stem, int64_t number, int64_t count) {
  return absl::StrFormat("%s-%05d-of-%05d.gguf", stem, number, count);
}

}  // namespace

absl::StatusOr<GgufFile> GgufFile::Open(const std::string& path) {
  GgufFile file;
  COPPICE_RETURN_IF_ERROR(file.AddPart(path));
  COPPICE_RETURN_IF_ERROR(file.OpenParts(path));
  return file;
}

absl::Status GgufFile::AddPart(const std::string& path) {
  COPPICE_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  COPPICE_ASSIGN_OR_RETURN(GgufHeader header, ParseGgufHeader(path, mapped.bytes()));
  const int number = static_cast<int>(parts_.size());
  parts_.push_back(std::move(mapped));
  if (number == 0) metadata_ = std::move(header.metadata);
  for (GgufTensor& tensor : header.tensors) {
    tensor.part = number;
    const std::string name = tensor.name;
    if (!tensors_.emplace(name, std::move(tensor)).second) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": tensor ", ShownName(name),
                                                     ": is also in another part of the model"));
    }
  }
  if (number == 0) return absl::OkStatus();
  const auto no = header.metadata.find("split.no");
  const auto found = no == header.metadata.end() ? std::nullopt : AsInt(no->second);
  if (found == number) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": key split.no: ", found ? absl::StrCat(*found) : "missing",
                   ", expected ", number, ", the part that its name says"));
}

absl::Status GgufFile::OpenParts(const std::string& path) {
  COPPICE_ASSIGN_OR_RETURN(const int64_t count, IntOr("split.count", 0, kMostParts, 1));
  if (count <= 1) return absl::OkStatus();
  COPPICE_ASSIGN_OR_RETURN(const int64_t first, Int("split.no", 0, kMostParts));
  const std::string ending = PartName("", 1, count);
  if (first != 0 || !absl::EndsWith(path, ending)) {
    return KeyError("split.count", absl::StrCat(count, " parts, and this is number ", first + 1,
                                                "; expected the first, NAME", ending));
  }
  const std::string stem = path.substr(0, path.size() - ending.size());
  for (int64_t number = 2; number <= count; ++number)
    COPPICE_RETURN_IF_ERROR(AddPart(PartName(stem, number, count)));
  COPPICE_ASSIGN_OR_RETURN(const int64_t total, IntOr("split.tensors.count", 0, INT32_MAX,
                                                      static_cast<int64_t>(tensors_.size())));
  if (total == static_cast<int64_t>(tensors_.size())) return absl::OkStatus();
  return KeyError("split.tensors.count",
                  absl::StrCat(total, ", but the parts hold ", tensors_.size(), " tensors"));
}

absl::Status GgufFile::Error(absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(path(), ": ", what));
}

absl::Status GgufFile::KeyError(absl::string_view key, absl::string_view what) const {
  return Error(absl::StrCat("key ", key, ": ", what));
}

absl::StatusOr<GgufValue> GgufFile::Find(const std::string& key) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) return KeyError(key, "missing");
  return found->second;
}

absl::StatusOr<int64_t> GgufFile::Int(const std::string& key, int64_t low, int64_t high) const {
  COPPICE_ASSIGN_OR_RETURN(const GgufValue value, Find(key));
  const auto number = AsInt(value);
  if (number && *number >= low && *number <= high) return *number;
  return KeyError(key, absl::StrCat(number ? absl::StrCat(*number, ", ") : "",
                                    "expected an integer from ", low, " to ", high));
}

absl::StatusOr<int64_t> GgufFile::IntOr(const std::string& key, int64_t low, int64_t high,
                                        int64_t absent) const {
  if (!Has(key)) return absent;
  return Int(key, low, high);
}

absl::StatusOr<double> GgufFile::Number(const std::string& key, double low, double high) const {
  COPPICE_ASSIGN_OR_RETURN(const GgufValue value, Find(key));
  const auto number = AsNumber(value);
  if (number && *number >= low && *number <= high) return *number;
  return KeyError(key, absl::StrCat(number ? absl::StrCat(*number, ", ") : "",
                                    "expected a number from ", low, " to ", high));
}

absl::StatusOr<double> GgufFile::NumberOr(const std::string& key, double low, double high,
                                          double absent) const {
  if (!Has(key)) return absent;
  return Number(key, low, high);
}

absl::StatusOr<bool> GgufFile::BoolOr(const std::string& key, bool absent) const {
  if (!Has(key)) return absent;
  COPPICE_ASSIGN_OR_RETURN(const GgufValue value, Find(key));
  if (value.is_list || value.kind != GgufKind::kBool)
    return KeyError(key, "expected true or false");
  return value.bytes[0] != 0;
}

absl::StatusOr<std::string> GgufFile::Text(const std::string& key) const {
  COPPICE_ASSIGN_OR_RETURN(const GgufValue value, Find(key));
  if (value.is_list || value.kind != GgufKind::kText) return KeyError(key, "expected a text");
  const absl::string_view text = TextAt(value.bytes);
  if (!IsValidUtf8(text)) return KeyError(key, "expected a text in UTF-8");
  return std::string(text);
}

absl::StatusOr<std::string> GgufFile::TextOr(const std::string& key,
                                             const std::string& absent) const {
  if (!Has(key)) return absent;
  return Text(key);
}

absl::StatusOr<std::vector<absl::string_view>> GgufFile::Texts(const std::string& key) const {
  COPPICE_ASSIGN_OR_RETURN(const GgufValue value, Find(key));
  if (!value.is_list || value.kind != GgufKind::kText)
    return KeyError(key, "expected a list of texts");
  std::vector<absl::string_view> texts;
  texts.reserve(value.count);
  absl::Span<const char> rest = value.bytes;
  for (uint64_t i = 0; i < value.count; ++i) {
    texts.push_back(TextAt(rest));
    rest = rest.subspan(sizeof(uint64_t) + texts.back().size());
    if (!IsValidUtf8(texts.back()))
      return KeyError(absl::StrCat(key, "[", i, "]"), "expected a text in UTF-8");
  }
  return texts;
}

absl::StatusOr<std::vector<int32_t>> GgufFile::Ints(const std::string& key) const {
  COPPICE_ASSIGN_OR_RETURN(const GgufValue value, Find(key));
  if (!value.is_list || (value.kind != GgufKind::kI32 && value.kind != GgufKind::kU32))
    return KeyError(key, "expected a list of 32-bit integers");
  std::vector<int32_t> numbers(value.count);
  std::memcpy(numbers.data(), value.bytes.data(), value.bytes.size());
  return numbers;
}

absl::StatusOr<std::vector<float>> GgufFile::Floats(const std::string& key) const {
  COPPICE_ASSIGN_OR_RETURN(const GgufValue value, Find(key));
  if (!value.is_list || value.kind != GgufKind::kF32)
    return KeyError(key, "expected a list of 32-bit numbers");
  std::vector<float> numbers(value.count);
  std::memcpy(numbers.data(), value.bytes.data(), value.bytes.size());
  return numbers;
}

const GgufTensor* GgufFile::FindTensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

absl::Span<const char> GgufFile::Bytes(const GgufTensor& tensor) const {
  return parts_[tensor.part].bytes().subspan(tensor.begin, tensor.end - tensor.begin);
}

absl::StatusOr<std::vector<float>> GgufFile::Vector(const std::string& name, int64_t size) const {
  const GgufTensor* tensor = FindTensor(name);
  if (tensor == nullptr) return Error(absl::StrCat("tensor ", name, ": missing"));
  if (tensor->type->number != 0 || tensor->shape != std::vector<int64_t>{size}) {
    return Error(absl::StrCat("tensor ", name, ": ", tensor->type->name, " [",
                              absl::StrJoin(tensor->shape, ", "), "], expected F32 [", size, "]"));
  }
  std::vector<float> values(size);
  std::memcpy(values.data(), Bytes(*tensor).data(), values.size() * sizeof(float));
  for (const float value : values) {
    if (!std::isfinite(value))
      return Error(absl::StrCat("tensor ", name, ": has ", value, ", expected finite numbers"));
  }
  return values;
}

}  // namespace coppice::model_files
