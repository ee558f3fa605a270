// Reads device memory, for measurements: its time is that of reading alone, and after it the caches
// hold nothing but unchanged lines of what was read last. Enqueues one launch on a stream and
// returns; launch errors are left for cudaGetLastError.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace coppice::kernels::cuda {

inline constexpr int kReadWarps = 8;  // of a block
inline constexpr int64_t kReadUnit = 16;

struct ReadArgs {
  const void* data = nullptr;  // aligned to kReadUnit bytes
  int64_t bytes = 0;           // a multiple of kReadUnit
  // Exclusive or of the 32-bit words that each warp has read: that all of them have been read.
  uint32_t* sums = nullptr;  // [ReadBlocks() kReadWarps]
};
// Blocks of a launch on a device of this many multiprocessors: as many as are resident, or fewer if
// that leaves some without work.
int ReadBlocks(int64_t bytes, int multiprocessors);
void ReadMemory(const ReadArgs& args, int blocks, cudaStream_t stream);

}  // namespace coppice::kernels::cuda
