// The gain of a norm in host memory, with its bias if it has one. Immutable.
#pragma once

#include <utility>
#include <vector>

#include "kernels/backend.h"

namespace coppice::kernels::cpu {

class CpuGain : public Weight {
 public:
  CpuGain(std::vector<float> gain, std::vector<float> offset)
      : values(std::move(gain)), bias(std::move(offset)) {
    rows = 1;
    columns = static_cast<int64_t>(values.size());
    bytes = (values.size() + bias.size()) * sizeof(float);
  }

  const std::vector<float> values;  // [columns]
  const std::vector<float> bias;    // [columns] or empty
};

// A norm as the kernels read it: n values.
struct NormArgs {
  const float* gain = nullptr;  // [n]; nullptr: the values stay
  const float* bias = nullptr;  // [n] or nullptr
  NormKind kind = NormKind::kRms;
  float epsilon = 0;
  int64_t columns = 0;  // n
};

inline NormArgs ArgsOf(const Norm& norm) {
  if (norm.empty()) return {};
  const auto& gain = static_cast<const CpuGain&>(*norm.gain);
  return {gain.values.data(), gain.bias.empty() ? nullptr : gain.bias.data(), norm.kind,
          norm.epsilon, gain.columns};
}

}  // namespace coppice::kernels::cpu
