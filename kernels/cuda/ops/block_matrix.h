// Matrices in the formats Q8_0 and Q4_0 (kernels/block_format.h) as the device keeps them: the same
// codes and scales as in a file, in the same number of bytes, arranged for the tensor instructions.
// Filled by runtime/block_packing.h, read by block_product.cu and embed.cu.
//
// A panel has 16 outputs. Along it lie units of 64 inputs, two blocks of each output:
//   scales, f16, [8 lane groups g][2 blocks][2]: of output g, then of output g + 8
//   codes, a byte or half a byte each, of lane 4 g + t of a warp. A byte and its place in a quarter
//   of four bytes: outputs g, g, g + 8, g + 8, inputs 2 t, 2 t + 1, 2 t, 2 t + 1, on top of the
//   quarter's first input.
//     Q8_0  [2 blocks][32 lanes][4 quarters][4]: quarters of inputs 0, 8, 16, 24; bytes are code + 128
//     Q4_0  [32 lanes][2 blocks][2 halves][4]: the low half of a byte is of input 0 (16), the high
//           one of input 8 (24)
// So a lane has what it needs of a unit in one load, or in two. Outputs and inputs that are absent
// have a scale of 0.
#pragma once

#include <cstdint>

#include "kernels/backend.h"

#if defined(__CUDACC__)
#define BLOCK_MATRIX_FUNCTION __host__ __device__ constexpr
#else
#define BLOCK_MATRIX_FUNCTION constexpr
#endif

namespace coppice::kernels::cuda {

inline constexpr int64_t kBlockPanel = 16;      // outputs
inline constexpr int64_t kBlockUnit = 64;       // inputs
inline constexpr int64_t kUnitScaleBytes = 64;  // of a unit

constexpr bool IsDeviceBlocks(DType dtype) {
  return dtype == DType::kQ8_0 || dtype == DType::kQ4_0;
}
BLOCK_MATRIX_FUNCTION int64_t BlockUnitBytes(bool four_bits) {
  return kUnitScaleBytes + kBlockPanel * kBlockUnit / (four_bits ? 2 : 1);
}
BLOCK_MATRIX_FUNCTION int64_t BlockUnits(int64_t inputs) {
  return (inputs + kBlockUnit - 1) / kBlockUnit;
}
BLOCK_MATRIX_FUNCTION int64_t BlockPanels(int64_t outputs) {
  return (outputs + kBlockPanel - 1) / kBlockPanel;
}
BLOCK_MATRIX_FUNCTION int64_t BlockPanelBytes(bool four_bits, int64_t inputs) {
  return BlockUnits(inputs) * BlockUnitBytes(four_bits);
}

// Where one value lies in the bytes of its unit.
struct BlockPlace {
  int64_t scale = 0;  // first byte of its scale
  int64_t code = 0;   // byte of its code
  int shift = 0;      // bits of the byte below the code
};
// output: of the panel. input: of the unit.
BLOCK_MATRIX_FUNCTION BlockPlace PlaceInUnit(bool four_bits, int64_t output, int64_t input) {
  const int64_t group = output % 8, upper = output / 8, block = input / 32,
                quarter = input % 32 / 8;
  const int64_t lane = group * 4 + input % 8 / 2, place = upper * 2 + input % 2;
  const int64_t scale = ((group * 2 + block) * 2 + upper) * 2;
  if (four_bits) {
    return {scale, kUnitScaleBytes + lane * 16 + block * 8 + quarter / 2 * 4 + place,
            quarter % 2 == 1 ? 4 : 0};
  }
  return {scale, kUnitScaleBytes + (block * 32 + lane) * 16 + quarter * 4 + place, 0};
}

}  // namespace coppice::kernels::cuda

#undef BLOCK_MATRIX_FUNCTION
