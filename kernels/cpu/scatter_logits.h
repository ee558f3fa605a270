// The scatter of short rows over the places of long ones, in host memory. Immutable.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/backend.h"

namespace coppice::kernels::cpu {

class CpuScatter : public Weight {
 public:
  CpuScatter(std::vector<int32_t> places_of_values, int64_t places)
      : ids(std::move(places_of_values)) {
    rows = places;
    columns = static_cast<int64_t>(ids.size());
    bytes = ids.size() * sizeof(int32_t);
  }

  // kept [columns], wide [rows].
  void ScatterRow(const float* kept, float* wide) const {
    std::fill_n(wide, rows, -std::numeric_limits<float>::infinity());
    for (size_t i = 0; i < ids.size(); ++i) wide[ids[i]] = kept[i];
  }

  const std::vector<int32_t> ids;  // [columns]
};

}  // namespace coppice::kernels::cpu
