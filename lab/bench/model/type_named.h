// The names of weight types on the command line.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "kernels/block_format.h"

namespace coppice::bench {

// The type that "f32", "bf16", "int8" or "int4" names, or a block format as "q4_k".
inline std::optional<kernels::DType> FindType(const std::string& type) {
  using kernels::DType;
  if (type == "f32") return DType::kF32;
  if (type == "bf16") return DType::kBF16;
  if (type == "int8") return DType::kQ8_0;
  if (type == "int4") return DType::kQ4_0;
  for (const kernels::BlockFormat& format : kernels::BlockFormats()) {
    if (absl::EqualsIgnoreCase(type, format.name)) return format.dtype;
  }
  return std::nullopt;
}

inline kernels::DType TypeNamed(const std::string& type) { return FindType(type).value(); }

}  // namespace coppice::bench
