// The rotary positions of a GGUF file as the fields of config.json. Pure. Called by gguf_config.cc.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "model_files/gguf_file.h"
#include "nlohmann/json_fwd.hpp"

namespace coppice::model_files {

struct GgufSizes {
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t rope_dims = 0;  // of a head, the values that rotate
  int64_t context = 0;
};

// Adds rope_theta and, where positions are scaled, rope_scaling. name: of the architecture, which
// the keys begin with. InvalidArgument names the key or tensor that is not served.
absl::Status AddGgufRope(const GgufFile& file, const std::string& name, const GgufSizes& sizes,
                         nlohmann::json* config);

}  // namespace coppice::model_files
