// The sizes that all forms of packed weights share: panels of 16 outputs, and the groups of inputs
// of integer products.
#pragma once

#include <cstdint>

namespace coppice::kernels::cpu {

inline constexpr int64_t kPanelWidth = 16;  // outputs
// Inputs of a block of integer weights. Inputs of integer products are stored in such groups.
inline constexpr int64_t kInt8Group = 64;
constexpr int64_t Int8Groups(int64_t columns) { return (columns + kInt8Group - 1) / kInt8Group; }
inline constexpr int64_t kStepBytes = kPanelWidth * 4;  // four bytes of each output

}  // namespace coppice::kernels::cpu
