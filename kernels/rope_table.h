// Rotary position embedding as host tables of cos and sin, with the frequency scalings of Hugging
// Face (linear, llama3). The CPU backend reads it, and a device gets a copy; immutable, shared by
// threads.
#pragma once

#include <vector>

#include "kernels/backend.h"

namespace coppice::kernels {

struct HostRopeTable : RopeTable {
  std::vector<float> cos;  // [max_positions, head_dim / 2]
  std::vector<float> sin;  // [max_positions, head_dim / 2]
};

// Angular frequency of each rotated pair, [head_dim / 2], radians per position. The llama3 scaling
// is that of transformers' _compute_llama3_parameters: wavelengths longer than original /
// low_freq_factor are multiplied by llama3_factor, those shorter than original / high_freq_factor
// are kept, and between them the two are blended.
std::vector<double> RopeFrequencies(const RopeConfig& config);

// cos and sin are computed in double and rounded once to f32.
HostRopeTable BuildRopeTable(const RopeConfig& config);

}  // namespace coppice::kernels
