#include "kernels/rope_table.h"

#include <cmath>

#include "base/check.h"

namespace coppice::kernels {

std::vector<double> PlainFrequencies(int rotary_dim, double theta) {
  std::vector<double> frequencies(rotary_dim / 2);
  for (int i = 0; i < rotary_dim / 2; ++i) frequencies[i] = std::pow(theta, -2.0 * i / rotary_dim);
  return frequencies;
}

HostRopeTable BuildRopeTable(const RopeConfig& config) {
  COPPICE_CHECK_MSG(!config.frequencies.empty(), "no frequencies");
  COPPICE_CHECK_MSG(config.max_positions > 0, absl::StrCat("max_positions=", config.max_positions));
  HostRopeTable table;
  table.rotary_dim = 2 * static_cast<int>(config.frequencies.size());
  table.max_positions = config.max_positions;
  table.cos.reserve(config.frequencies.size() * config.max_positions);
  table.sin.reserve(config.frequencies.size() * config.max_positions);
  for (int position = 0; position < config.max_positions; ++position) {
    for (const double frequency : config.frequencies) {
      table.cos.push_back(static_cast<float>(std::cos(position * frequency) * config.scale));
      table.sin.push_back(static_cast<float>(std::sin(position * frequency) * config.scale));
    }
  }
  return table;
}

}  // namespace coppice::kernels
