// The input of a product with weights in blocks: int8 in groups of 32, each with its own scale,
// symmetric: value = scale * q with q in -127 .. 127, scale = largest magnitude / 127. Pure
// functions.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/panel.h"

namespace coppice::kernels::cpu {

// What a product with weights in blocks needs of its inputs.
struct Int8Form {
  int summed = 32;      // inputs of which there is one sum: 16 or 32
  int offset = 128;     // of the codes of the weights
  bool scaled = false;  // the weights have minima, and sums are scaled for them
  bool operator==(const Int8Form&) const = default;
};
Int8Form Int8FormFor(DType weights);

// Rows of inputs as the kernels broadcast them. Inputs after the last are 0. The same 64 inputs of
// all rows lie together, so a tile finds its rows at distances known at compile time. Halves are
// rounded away from zero. If a value is not finite, neither is the scale of its group.
struct Int8Rows {
  int64_t rows = 0;
  std::vector<uint32_t> words;  // [blocks of 64][rows][16]: four q, the first in the lowest byte
  std::vector<float> scale;     // [blocks][rows][2]
  // Sums of q: what the offset of the weights adds to the sums of a product, -offset times those of
  // q; or, if scaled, what a minimum is multiplied with, the sum times its scale.
  std::vector<int32_t> correction;  // [blocks][rows][64 / summed], unless scaled
  std::vector<float> scaled_sum;    // [blocks][rows][64 / summed], if scaled
  Int8Form form;

  // For products with weights of that type.
  void Resize(int64_t row_count, int64_t columns, DType weights);
  // Row `row` from x [columns]. After Resize. Any thread, each row once.
  void Set(int64_t row, const float* x, int64_t columns);
};

}  // namespace coppice::kernels::cpu
