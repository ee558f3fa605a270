// Values as int8 in groups of 64 along the inputs of a product, each group with its own scale,
// symmetric: value = scale * q with q in -127 .. 127, scale = largest magnitude / 127. Weights are
// turned into it when they are packed, the input of a product with int8 or int4 weights row by row.
// Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/packed_matrix.h"

namespace coppice::kernels::cpu {

// Writes the q of `count` values, at most kInt8Group, and returns the scale; 0 for zeros. Halves
// are rounded away from zero. If a value is not finite, neither is the scale.
float QuantiseGroup(const float* values, int64_t count, int8_t* q);

// Rows of inputs as the kernels broadcast them. Inputs after the last are 0. The same group of all
// rows lies together, so a tile finds its rows at distances known at compile time.
struct Int8Rows {
  int64_t rows = 0;
  std::vector<uint32_t> words;  // [groups][rows][16]: four q, the first in the lowest byte
  std::vector<float> scale;     // [groups][rows]
  // What the offset of the weights adds to the sums, negative, for each group of the weights.
  // int8: [groups][rows]: -128 times the sum of q. int4: [groups][rows][2]: -8 times that of 32 q.
  std::vector<int32_t> correction;
  DType weights = DType::kI8;

  // For products with weights of that type, kI8 or kI4.
  void Resize(int64_t row_count, int64_t columns, DType of_weights);
  // Row `row` from x [columns]. After Resize. Any thread, each row once.
  void Set(int64_t row, const float* x, int64_t columns);
};

}  // namespace coppice::kernels::cpu
