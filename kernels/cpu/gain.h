// The gain of a norm in host memory. Immutable.
#pragma once

#include <utility>
#include <vector>

#include "kernels/backend.h"

namespace coppice::kernels::cpu {

class CpuGain : public Weight {
 public:
  explicit CpuGain(std::vector<float> gain) : values(std::move(gain)) {
    rows = 1;
    columns = static_cast<int64_t>(values.size());
    bytes = values.size() * sizeof(float);
  }

  const std::vector<float> values;  // [columns]
};

}  // namespace coppice::kernels::cpu
