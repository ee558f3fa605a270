// Values as int8 in groups of 64 along the inputs of a product, each group with its own scale,
// symmetric: value = scale * q with q in -127 .. 127, scale = largest magnitude / 127. Weights are
// turned into it when they are packed, the input of a product row by row. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/packed_matrix.h"

namespace coppice::kernels::cpu {

// Writes the q of `count` values, at most kInt8Group, and returns the scale; 0 for zeros. Halves are
// rounded away from zero. Not finite: the scale is not finite either.
float QuantiseGroup(const float* values, int64_t count, int8_t* q);

// Rows of inputs as the kernels broadcast them. An input behind the last is 0.
struct Int8Rows {
  std::vector<uint32_t> words;  // [rows][groups][16]: four q, the first in the lowest byte
  std::vector<float> scale;     // [rows][groups]
  std::vector<int32_t>
      correction;  // [rows][groups]: -128 times the sum of q, as weights are q + 128

  void Resize(int64_t rows, int64_t columns);
  // Row `row` from x [columns]. After Resize. Any thread, each row once.
  void Set(int64_t row, const float* x, int64_t columns);
};

}  // namespace coppice::kernels::cpu
