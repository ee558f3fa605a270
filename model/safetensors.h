// Parses the header of a safetensors file. The file is the header's length (8 bytes,
// little-endian), the header (a JSON object name -> {dtype, shape, data_offsets}) and the data. The
// bytes are untrusted. Called by checkpoint.cc, which maps the files. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace coppice::model {

struct TensorInfo {
  std::string name;
  std::string dtype;           // as written: "F32", "BF16", "F16", "I64", ...
  std::vector<int64_t> shape;  // [] is a scalar
  uint64_t begin = 0;          // bytes from the start of the file
  uint64_t end = 0;
};

// `file` is the whole file; only its header is read. Returns the tensors sorted by begin. Each has
// exactly the bytes of its shape and dtype. Together they fill the data of the file, without
// overlaps, holes or bytes after the last.
// InvalidArgument names PATH, the tensor and what was expected, on one line.
absl::StatusOr<std::vector<TensorInfo>> ParseSafetensorsHeader(const std::string& path,
                                                               absl::Span<const char> file);

// "[512, 64]".
std::string ShapeText(absl::Span<const int64_t> shape);

}  // namespace coppice::model
