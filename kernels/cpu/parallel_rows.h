// Spreads ops that work row by row over the threads of a team.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/thread_team.h"

namespace coppice::kernels::cpu {

// Calls function(begin, end) for ranges that cover [0, rows), in parallel when there is enough
// work. work: simple operations per row.
template <class Function>
void ForRows(int64_t rows, int64_t work, ThreadTeam* team, Function&& function) {
  constexpr int64_t kWorkPerChunk = 64 << 10;  // about 20 us
  const int64_t chunks =
      std::clamp<int64_t>(rows * work / kWorkPerChunk, 1, std::max<int64_t>(1, rows));
  const int count = static_cast<int>(std::min<int64_t>(chunks, 4 * team->count()));
  team->Run(count, [&](int chunk) { function(rows * chunk / count, rows * (chunk + 1) / count); });
}

}  // namespace coppice::kernels::cpu
