// Bitonic sort of a few values by one warp, without shared memory. For .cu files.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/device.h"

namespace coppice::kernels::cuda {

// Sorts 32 kEach values, larger first: afterwards value[i] of lane l is number l * kEach + i. All
// lanes call the same; kEach a power of two.
template <int kEach>
DEV_FUNCTION void SortWarp(uint64_t (&value)[kEach]) {
  static_assert((kEach & (kEach - 1)) == 0);
  const int first = static_cast<int>(threadIdx.x) % dev::kWarpSize * kEach;
  DEV_UNROLL
  for (int size = 2; size <= dev::kWarpSize * kEach; size *= 2) {  // of runs, up and down in turns
    DEV_UNROLL
    for (int step = size / 2; step > 0; step /= 2) {
      if (step >= kEach) {  // partners are of the same place in another lane
        const bool larger = ((first & size) == 0) == ((first & step) == 0);
        DEV_UNROLL
        for (int i = 0; i < kEach; ++i) {
          const uint64_t other = __shfl_xor_sync(dev::kFullWarp, value[i], step / kEach);
          if ((other > value[i]) == larger) value[i] = other;
        }
      } else {
        DEV_UNROLL
        for (int i = 0; i < kEach; ++i) {
          if ((i & step) != 0) continue;
          const bool down = ((first + i) & size) == 0;
          const uint64_t a = value[i], b = value[i + step];
          if ((b > a) == down) {
            value[i] = b;
            value[i + step] = a;
          }
        }
      }
    }
  }
}

}  // namespace coppice::kernels::cuda
