// The header of a safetensors file: 8 bytes little-endian length, a JSON object name -> {dtype,
// shape, data_offsets}, then the data. Pure parsing of untrusted bytes; checkpoint.cc maps the
// files and calls it.
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

// `file` is the whole file; only its header is read. Every tensor returned lies inside the file,
// holds exactly shape x dtype bytes and overlaps no other; sorted by begin. InvalidArgument: one
// line, PATH, tensor, expectation.
absl::StatusOr<std::vector<TensorInfo>> ParseSafetensorsHeader(const std::string& path,
                                                               absl::Span<const char> file);

// "[512, 64]".
std::string ShapeText(absl::Span<const int64_t> shape);

}  // namespace coppice::model
