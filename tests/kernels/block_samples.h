// Matrices in the block formats of GGUF for tests: random blocks, and their values by a reading of
// the formats of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/block_format.h"

namespace coppice::kernels {

// Blocks with random codes and scales; d and m are of both signs, now and then zero or subnormal.
// The same seed gives the same bytes.
class BlockMatrix {
 public:
  BlockMatrix(DType dtype, int64_t rows, int64_t columns, uint64_t seed);

  MatrixSource source() const;
  // The exact values, rounded once to f32. [rows, columns]
  std::vector<float> Values() const;
  // Overwrites d of a block with these bits of an f16.
  void SetScale(int64_t row, int64_t block, uint16_t bits);
  // The same for m, of a format that has it.
  void SetMinimum(int64_t row, int64_t block, uint16_t bits);

 private:
  uint8_t* Block(int64_t row, int64_t block);

  const DType dtype_;
  const int64_t rows_, columns_;
  std::vector<uint8_t> bytes_;
};

bool HasMinimum(DType dtype);  // whether blocks have m

// All block formats.
std::vector<DType> AllBlockTypes();

}  // namespace coppice::kernels
