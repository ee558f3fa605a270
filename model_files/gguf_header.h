// Parses the header of a GGUF file, version 2 or 3, little-endian: a magic number, the version, the
// counts; the metadata (name, type, value); for each tensor its name, sizes, type and offset; then
// the data. The bytes are untrusted. Called by gguf_file.cc, which maps the files. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model_files/gguf_type.h"

namespace coppice::model_files {

// Types of metadata, as the file numbers them.
enum class GgufKind : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kText = 8,
  kList = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// A value of the metadata. Its bytes lie in the file and have been checked: they are exactly those
// of `count` items, and the length of each text is right.
struct GgufValue {
  GgufKind kind = GgufKind::kU8;  // of the items
  bool is_list = false;
  uint64_t count = 1;  // items
  absl::Span<const char> bytes;
};

struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;  // rows first, as safetensors; 1 to 4 sizes of at least 1
  const GgufType* type = nullptr;
  int part = 0;        // which file of a split model
  uint64_t begin = 0;  // bytes from the start of the file
  uint64_t end = 0;
};

struct GgufHeader {
  std::map<std::string, GgufValue> metadata;
  std::vector<GgufTensor> tensors;  // sorted by begin
};

// `file` is the whole file and must outlive the values. Only its header is read. Each tensor has
// whole blocks in each row, lies in the file at a multiple of its alignment, and overlaps no other.
// InvalidArgument names PATH, the item and what was expected, on one line.
absl::StatusOr<GgufHeader> ParseGgufHeader(const std::string& path, absl::Span<const char> file);

// The name of a key or tensor for a message: printable, shortened.
std::string ShownName(absl::string_view name);

}  // namespace coppice::model_files
