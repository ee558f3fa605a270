// The names of weight types on the command line.
#pragma once

#include <string>

#include "kernels/backend.h"

namespace coppice::bench {

// The type that "f32", "bf16", "int8" or "int4" names.
inline kernels::DType TypeNamed(const std::string& type) {
  using kernels::DType;
  if (type == "int8") return DType::kI8;
  if (type == "int4") return DType::kI4;
  return type == "f32" ? DType::kF32 : DType::kBF16;
}

}  // namespace coppice::bench
