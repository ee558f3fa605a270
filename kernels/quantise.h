// Weights as blocks of 32 of 4 or 8 bits: what --weight_dtype int4 and int8 make, in the formats Q4_0
// and Q8_0 of GGUF (kernels/block_format.h). Pure functions.
#pragma once

#include <cstdint>

#include "kernels/backend.h"

namespace coppice::kernels {

inline constexpr int64_t kQuantisedGroup = 32;    // inputs that share a scale
inline constexpr int64_t kQuantisedOutputs = 16;  // that are quantised together

// A block of each of the outputs.
struct QuantisedGroup {
  float values[kQuantisedGroup][kQuantisedOutputs];   // inputs that are absent are 0
  uint8_t codes[kQuantisedGroup][kQuantisedOutputs];  // as the format has them
  uint16_t scale[kQuantisedOutputs];                  // bits of an f16
};

// Sets codes and scales from the values, for kQ4_0 or kQ8_0. Codes are the nearest for the scale as
// it is stored. The bits are the same on every machine. A group with a value that is not finite, or
// too large for a scale in f16, gets a scale that is not finite.
//   Q8_0: the scale is the value of the largest magnitude / 127, or the f16 above.
//   Q4_0: tries scales between the largest value / -6.5 and / -9.5, each corrected to the best scale
//   for its steps, and takes the one with the least squared error.
void Quantise(DType dtype, QuantisedGroup* group);

}  // namespace coppice::kernels
