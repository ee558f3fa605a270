// The metadata of a mixture of experts in a GGUF file. Pure. Called by gguf_config.cc.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "model_files/gguf_file.h"

namespace coppice::model_files {

constexpr int64_t kMostExperts = 1 << 16;

struct GgufExperts {
  int64_t count = 0;
  int64_t chosen = 0;  // of a row
};

// name: the architecture. InvalidArgument names the key that contradicts the others, and the key or
// tensor of a part that is not served: experts that every row uses, biases, other scores.
absl::StatusOr<GgufExperts> ReadGgufExperts(const GgufFile& file, const std::string& name);

}  // namespace coppice::model_files
