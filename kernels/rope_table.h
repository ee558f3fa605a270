// Rotary position embedding as host tables of cos and sin. The CPU backend reads it, and a device
// gets a copy; immutable, shared by threads.
#pragma once

#include <vector>

#include "kernels/backend.h"

namespace coppice::kernels {

struct HostRopeTable : RopeTable {
  std::vector<float> cos;  // [max_positions, rotary_dim / 2]
  std::vector<float> sin;  // [max_positions, rotary_dim / 2]
};

// Frequencies without scaling, [rotary_dim / 2], radians per position: theta^(-2 i / rotary_dim).
std::vector<double> PlainFrequencies(int rotary_dim, double theta);

// cos and sin are computed in double and rounded once to f32.
HostRopeTable BuildRopeTable(const RopeConfig& config);

}  // namespace coppice::kernels
