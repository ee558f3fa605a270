// The sizes that all forms of packed weights share: panels of 16 outputs, and the blocks of inputs
// of integer products.
#pragma once

#include <cstdint>

namespace coppice::kernels::cpu {

inline constexpr int64_t kPanelWidth = 16;  // outputs
// Inputs of a block of integer weights, and of a block of the input of an integer product.
inline constexpr int64_t kBlockInputs = 64;
constexpr int64_t InputBlocks(int64_t columns) {
  return (columns + kBlockInputs - 1) / kBlockInputs;
}
inline constexpr int64_t kStepBytes = kPanelWidth * 4;  // four bytes of each output

}  // namespace coppice::kernels::cpu
