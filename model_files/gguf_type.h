// The types of tensors that a GGUF file can name: how many values a block has, and its bytes. A
// type that is listed is not necessarily served (model/gguf_checkpoint.cc decides). Pure.
#pragma once

#include <cstdint>

namespace coppice::model_files {

struct GgufType {
  uint32_t number;   // in the file
  const char* name;  // "Q4_K"
  int64_t values;    // of a block
  int64_t bytes;     // of a block
};

// Null: no type has this number.
const GgufType* FindGgufType(uint32_t number);

}  // namespace coppice::model_files
