#include "model_files/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace coppice::model_files {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read as they lie");

constexpr uint64_t kMostHeaderBytes = uint64_t{256} << 20;  // a vocabulary takes some ten megabytes
constexpr uint64_t kMostItems = 1 << 16;                    // keys, and tensors
constexpr uint64_t kMostNameBytes = (1 << 16) - 1;
constexpr uint64_t kMostAlignment = 1 << 20;
constexpr uint64_t kDefaultAlignment = 32;

// Bytes of an item, 0 for a text.
std::optional<uint64_t> ItemBytes(GgufKind kind) {
  switch (kind) {
    case GgufKind::kU8:
    case GgufKind::kI8:
    case GgufKind::kBool:
      return 1;
    case GgufKind::kU16:
    case GgufKind::kI16:
      return 2;
    case GgufKind::kU32:
    case GgufKind::kI32:
    case GgufKind::kF32:
      return 4;
    case GgufKind::kU64:
    case GgufKind::kI64:
    case GgufKind::kF64:
      return 8;
    case GgufKind::kText:
      return 0;
    case GgufKind::kList:
      break;
  }
  return std::nullopt;
}

class Parser {
 public:
  Parser(const std::string& path, absl::Span<const char> file) : path_(path), file_(file) {}

  absl::StatusOr<GgufHeader> Parse() {
    uint64_t tensors = 0, keys = 0;
    COPPICE_RETURN_IF_ERROR(ReadBeginning(&tensors, &keys));
    for (uint64_t i = 0; i < keys; ++i) COPPICE_RETURN_IF_ERROR(ReadKey(i));
    COPPICE_ASSIGN_OR_RETURN(alignment_, ReadAlignment());
    for (uint64_t i = 0; i < tensors; ++i) COPPICE_RETURN_IF_ERROR(ReadTensor(i));
    COPPICE_RETURN_IF_ERROR(PlaceTensors());
    return std::move(header_);
  }

 private:
  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", what));
  }

  absl::Status Take(uint64_t count, absl::string_view item, absl::Span<const char>* bytes) {
    if (count > file_.size() - at_) {
      return Error(absl::StrCat("the file ends at byte ", file_.size(), ", inside of ", item,
                                ": it is truncated"));
    }
    if (count > kMostHeaderBytes || at_ + count > kMostHeaderBytes) {
      return Error(absl::StrCat(item, ": the header has more than ", kMostHeaderBytes, " bytes"));
    }
    *bytes = file_.subspan(at_, count);
    at_ += count;
    return absl::OkStatus();
  }

  template <typename T>
  absl::StatusOr<T> Number(absl::string_view item) {
    absl::Span<const char> bytes;
    COPPICE_RETURN_IF_ERROR(Take(sizeof(T), item, &bytes));
    T value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }

  absl::StatusOr<std::string> Name(absl::string_view item) {
    COPPICE_ASSIGN_OR_RETURN(const uint64_t length, Number<uint64_t>(item));
    if (length == 0 || length > kMostNameBytes) {
      return Error(absl::StrCat(item, ": ", length, " bytes, expected 1 to ", kMostNameBytes));
    }
    absl::Span<const char> bytes;
    COPPICE_RETURN_IF_ERROR(Take(length, item, &bytes));
    return std::string(bytes.data(), bytes.size());
  }

  absl::Status ReadBeginning(uint64_t* tensors, uint64_t* keys) {
    absl::Span<const char> magic;
    COPPICE_RETURN_IF_ERROR(Take(4, "the header", &magic));
    const absl::string_view found(magic.data(), magic.size());
    if (found != "GGUF") {
      return Error(
          absl::StrCat("begins with '", absl::CHexEscape(found), "', expected a GGUF file"));
    }
    COPPICE_ASSIGN_OR_RETURN(const uint32_t version, Number<uint32_t>("the header"));
    if (version != 2 && version != 3) {
      if (version == uint32_t{2} << 24 || version == uint32_t{3} << 24)
        return Error("big-endian, expected a little-endian GGUF file");
      return Error(absl::StrCat("GGUF version ", version, ", expected 2 or 3"));
    }
    COPPICE_ASSIGN_OR_RETURN(*tensors, Number<uint64_t>("the header"));
    COPPICE_ASSIGN_OR_RETURN(*keys, Number<uint64_t>("the header"));
    for (const auto& [what, count] : {std::pair("tensors", *tensors), {"keys", *keys}}) {
      if (count > kMostItems) {
        return Error(
            absl::StrCat("the header: ", count, " ", what, ", expected at most ", kMostItems));
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadKey(uint64_t i) {
    COPPICE_ASSIGN_OR_RETURN(const std::string name, Name(absl::StrCat("the name of key ", i)));
    const std::string item = absl::StrCat("key ", ShownName(name));
    COPPICE_ASSIGN_OR_RETURN(uint32_t kind, Number<uint32_t>(item));
    GgufValue value;
    value.is_list = kind == static_cast<uint32_t>(GgufKind::kList);
    if (value.is_list) {
      COPPICE_ASSIGN_OR_RETURN(kind, Number<uint32_t>(item));
      COPPICE_ASSIGN_OR_RETURN(value.count, Number<uint64_t>(item));
    }
    value.kind = static_cast<GgufKind>(kind);
    const auto bytes = ItemBytes(value.kind);
    if (!bytes) {
      return Error(absl::StrCat(item, value.is_list ? ": a list of type " : ": type ", kind,
                                ", expected a type of metadata, 0 to 12",
                                value.is_list ? ", but not a list" : ""));
    }
    COPPICE_RETURN_IF_ERROR(TakeItems(item, *bytes, &value));
    if (!header_.metadata.emplace(name, value).second)
      return Error(absl::StrCat(item, ": appears twice"));
    return absl::OkStatus();
  }

  // Sets value->bytes to those of its items.
  absl::Status TakeItems(const std::string& item, uint64_t item_bytes, GgufValue* value) {
    const uint64_t begin = at_, room = file_.size() - at_;
    const uint64_t least = std::max<uint64_t>(item_bytes, item_bytes == 0 ? 8 : 0);
    if (value->count > room / least) {
      return Error(absl::StrCat(item, ": ", value->count, " items do not fit into the ", room,
                                " bytes that the file still has: it is truncated"));
    }
    absl::Span<const char> bytes;
    if (item_bytes > 0) {
      COPPICE_RETURN_IF_ERROR(Take(value->count * item_bytes, item, &bytes));
    } else {
      for (uint64_t i = 0; i < value->count; ++i) {
        COPPICE_ASSIGN_OR_RETURN(const uint64_t length, Number<uint64_t>(item));
        COPPICE_RETURN_IF_ERROR(Take(length, item, &bytes));
      }
    }
    value->bytes = file_.subspan(begin, at_ - begin);
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> ReadAlignment() const {
    const auto found = header_.metadata.find("general.alignment");
    if (found == header_.metadata.end()) return kDefaultAlignment;
    uint32_t alignment = 0;
    if (found->second.kind == GgufKind::kU32 && !found->second.is_list)
      std::memcpy(&alignment, found->second.bytes.data(), sizeof alignment);
    if (!std::has_single_bit(alignment) || alignment > kMostAlignment) {
      return Error(absl::StrCat("key general.alignment: expected a power of two up to ",
                                kMostAlignment, ", as a 32-bit number"));
    }
    return alignment;
  }

  absl::Status ReadTensor(uint64_t i) {
    GgufTensor tensor;
    COPPICE_ASSIGN_OR_RETURN(tensor.name, Name(absl::StrCat("the name of tensor ", i)));
    const std::string item = absl::StrCat("tensor ", ShownName(tensor.name));
    COPPICE_ASSIGN_OR_RETURN(const uint32_t sizes, Number<uint32_t>(item));
    if (sizes < 1 || sizes > 4)
      return Error(absl::StrCat(item, ": ", sizes, " dimensions, expected 1 to 4"));
    for (uint32_t k = 0; k < sizes; ++k) {
      COPPICE_ASSIGN_OR_RETURN(const int64_t size, Number<int64_t>(item));
      tensor.shape.insert(tensor.shape.begin(), size);  // the file has the columns first
    }
    COPPICE_ASSIGN_OR_RETURN(const uint32_t type, Number<uint32_t>(item));
    COPPICE_ASSIGN_OR_RETURN(tensor.begin, Number<uint64_t>(item));
    tensor.type = FindGgufType(type);
    if (tensor.type == nullptr) {
      return Error(absl::StrCat(item, ": type ", type, ", expected a number of a tensor type"));
    }
    COPPICE_RETURN_IF_ERROR(CountBytes(item, &tensor));
    if (!names_.insert(tensor.name).second) return Error(absl::StrCat(item, ": appears twice"));
    header_.tensors.push_back(std::move(tensor));
    return absl::OkStatus();
  }

  // Sets tensor->end to its size.
  absl::Status CountBytes(const std::string& item, GgufTensor* tensor) const {
    uint64_t count = 1;
    for (const int64_t size : tensor->shape) {
      if (size < 1 || count > static_cast<uint64_t>(INT64_MAX) / static_cast<uint64_t>(size)) {
        return Error(absl::StrCat(item, ": shape [", absl::StrJoin(tensor->shape, ", "),
                                  "], expected sizes of at least 1 whose product fits"));
      }
      count *= static_cast<uint64_t>(size);
    }
    const auto values = static_cast<uint64_t>(tensor->type->values);
    if (static_cast<uint64_t>(tensor->shape.back()) % values != 0) {
      return Error(absl::StrCat(item, ": rows of ", tensor->shape.back(),
                                " values, expected a multiple of ", values, ", the block of ",
                                tensor->type->name));
    }
    const auto bytes = static_cast<uint64_t>(tensor->type->bytes);
    if (count / values > file_.size() / bytes) {
      return Error(absl::StrCat(item, ": ", tensor->type->name, " [",
                                absl::StrJoin(tensor->shape, ", "), "] does not fit into the ",
                                file_.size(), " bytes of the file: it is truncated"));
    }
    tensor->end = count / values * bytes;
    return absl::OkStatus();
  }

  // Turns offsets into places in the file, which must hold them without overlaps.
  absl::Status PlaceTensors() {
    const uint64_t data = (at_ + alignment_ - 1) / alignment_ * alignment_;
    for (GgufTensor& tensor : header_.tensors) {
      const std::string item = absl::StrCat("tensor ", ShownName(tensor.name));
      const uint64_t size = tensor.end, offset = tensor.begin;
      if (offset % alignment_ != 0) {
        return Error(absl::StrCat(item, ": offset ", offset, ", expected a multiple of ",
                                  alignment_, ", the alignment"));
      }
      if (offset > file_.size() || data + offset > file_.size() - size) {
        return Error(absl::StrCat(item, ": ", size, " bytes at offset ", offset,
                                  " of the data, but the file has ", file_.size(),
                                  " bytes: it is truncated"));
      }
      tensor.begin = data + offset;
      tensor.end = tensor.begin + size;
    }
    auto& tensors = header_.tensors;
    std::sort(tensors.begin(), tensors.end(), [](const GgufTensor& a, const GgufTensor& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    for (size_t i = 1; i < tensors.size(); ++i) {
      if (tensors[i].begin < tensors[i - 1].end) {
        return Error(absl::StrCat("tensor ", ShownName(tensors[i].name), ": overlaps ",
                                  ShownName(tensors[i - 1].name)));
      }
    }
    return absl::OkStatus();
  }

  const std::string& path_;
  absl::Span<const char> file_;
  uint64_t at_ = 0;
  uint64_t alignment_ = kDefaultAlignment;
  std::set<std::string> names_;
  GgufHeader header_;
};

}  // namespace

std::string ShownName(absl::string_view name) { return absl::CHexEscape(name.substr(0, 200)); }

absl::StatusOr<GgufHeader> ParseGgufHeader(const std::string& path, absl::Span<const char> file) {
  return Parser(path, file).Parse();
}

}  // namespace coppice::model_files
