#include "kernels/rope_table.h"

#include <cmath>
#include <numbers>

#include "base/check.h"

namespace coppice::kernels {
namespace {

double Llama3Frequency(const RopeConfig& config, double frequency) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const double original = config.llama3_original_max_positions;
  const double low = config.llama3_low_freq_factor;
  const double high = config.llama3_high_freq_factor;
  if (wavelength > original / low) return frequency / config.llama3_factor;
  if (wavelength < original / high) return frequency;
  const double smooth = (original / wavelength - low) / (high - low);
  return (1.0 - smooth) * frequency / config.llama3_factor + smooth * frequency;
}

}  // namespace

std::vector<double> RopeFrequencies(const RopeConfig& config) {
  std::vector<double> frequencies(config.head_dim / 2);
  for (int i = 0; i < config.head_dim / 2; ++i) {
    double frequency = std::pow(config.theta, -2.0 * i / config.head_dim);
    if (config.llama3_factor > 0.0) frequency = Llama3Frequency(config, frequency);
    frequencies[i] = frequency / config.linear_factor;
  }
  return frequencies;
}

HostRopeTable BuildRopeTable(const RopeConfig& config) {
  COPPICE_CHECK_MSG(config.head_dim > 0 && config.head_dim % 2 == 0,
                    absl::StrCat("head_dim=", config.head_dim));
  COPPICE_CHECK_MSG(config.max_positions > 0, absl::StrCat("max_positions=", config.max_positions));
  const std::vector<double> frequencies = RopeFrequencies(config);
  HostRopeTable table;
  table.head_dim = config.head_dim;
  table.max_positions = config.max_positions;
  table.cos.reserve(frequencies.size() * config.max_positions);
  table.sin.reserve(frequencies.size() * config.max_positions);
  for (int position = 0; position < config.max_positions; ++position) {
    for (const double frequency : frequencies) {
      table.cos.push_back(static_cast<float>(std::cos(position * frequency)));
      table.sin.push_back(static_cast<float>(std::sin(position * frequency)));
    }
  }
  return table;
}

}  // namespace coppice::kernels
