// How the matrices of a Hugging Face folder are quantised: `quantization_config` of its config.json.
// Read by model_config.cc, which so refuses what is not served, and by checkpoint.cc. Pure.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "model/json_file.h"

namespace coppice::model {

// How the tensors of a matrix lie in the folder (quantised_checkpoint.h).
enum class QuantLayout {
  kPlain,   // nothing is quantised
  kGptq,    // 4 or 8 bits, codes along the inputs
  kAwq,     // 4 bits, codes along the outputs, in an order of their own
  kPacked,  // 4 or 8 bits of compressed-tensors, codes along the inputs
  kInt8,    // 8-bit integers of compressed-tensors
  kFp8,     // FP8 E4M3, of compressed-tensors or of "fp8"
};

struct Quantisation {
  QuantLayout layout = QuantLayout::kPlain;
  // Of kGptq, kAwq and kPacked: a value is scale * (code - zero).
  int bits = 4;                // of a code
  int64_t group = 0;           // neighbouring inputs that share a scale; 0: all of a row
  bool has_zeros = false;      // else all zeros are 8, or 128 of 8 bits
  int added_to_zeros = 0;      // what GPTQ has taken from them
  bool needs_indices = false;  // desc_act: g_idx says whether inputs are in another order
  // Of FP8: rows and columns of a block that has a scale; 0: scales are of rows or of the matrix.
  int64_t block_rows = 0, block_columns = 0;
};

// config: the object of config.json. InvalidArgument names the file, the field, and what is served.
absl::StatusOr<Quantisation> ReadQuantisation(const JsonFile& config);

}  // namespace coppice::model
