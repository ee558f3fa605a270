// Weights as 4 bits in groups of 32 along the inputs of a product, each group with its own bf16
// scale, without an offset: value = scale * q with q in -8 .. 7. A scale may be negative, so that
// the largest value may take the 8 steps of one side. Pure functions.
#pragma once

#include <cstdint>

#include "kernels/cpu/packed_matrix.h"

namespace coppice::kernels::cpu {

// A group of each output of a panel.
struct Int4Group {
  float values[kInt4Group][kPanelWidth];   // inputs that are absent are 0
  uint8_t codes[kInt4Group][kPanelWidth];  // q + 8
  uint16_t scale[kPanelWidth];             // bits of a bf16
};

// Sets codes and scales from the values. Tries scales between the largest value / -6.5 and / -9.5,
// each corrected to the best scale for its steps, and takes the one with the least squared error.
// The bits are the same on every machine. A group with a value that is not finite gets a scale that
// is not finite.
void QuantiseInt4(Int4Group* group);

}  // namespace coppice::kernels::cpu
