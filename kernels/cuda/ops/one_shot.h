// Sums over the ranks by kernels of our own, through memory that the ranks open of each other
// (one_shot_communicator.h). Each block of a rank writes its piece of the rank's values into an
// inbox on every other rank, raises a flag there, waits for the others' flags, and adds the arrived
// values in rank order: the same bits on every rank, whatever the order of arrival. One launch on
// each rank, the same sequence of launches on all. Enqueues one launch on a stream and returns;
// launch errors are left for cudaGetLastError.
//
// There are two inboxes, used in turn. A rank is at most one launch ahead of another: to end a
// launch it needs a flag of each, and a rank that raises the flag of launch n + 1 has ended launch
// n. So what is written at launch n + 2 overwrites what everybody has read.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/ops/launch.h"

namespace coppice::kernels::cuda {

inline constexpr int kMostOneShotRanks = 8;
inline constexpr int kMostOneShotBlocks = 128;
inline constexpr int64_t kMostOneShotFloats = 128 << 10;  // floats per launch: 512 KiB

// The memory of every rank, at this rank's addresses for it.
struct OneShotPeers {
  float* inbox[kMostOneShotRanks] = {};     // [2][ranks][kMostOneShotFloats]
  uint64_t* flags[kMostOneShotRanks] = {};  // [ranks][kMostOneShotBlocks], zero at first
};
// A counter of this rank in device memory, zero at first. Launches count themselves: a graph with
// one may be replayed.
struct OneShotCount {
  uint64_t launches = 0;
  uint32_t done = 0;  // blocks of the launch that are done
};
// Between kernels and host, in pinned memory, zero at first. After either is set, launches end at
// once, without a result.
struct OneShotReport {
  uint32_t abort = 0;  // set by the host, or by a kernel that has waited too long
  uint32_t missing[kMostOneShotRanks] = {};  // 1: a kernel has waited for this rank for too long
};

struct OneShotArgs {
  const OneShotPeers* peers = nullptr;  // in device memory
  OneShotCount* count = nullptr;
  OneShotReport* report = nullptr;
  int32_t rank = 0, ranks = 0;
  uint64_t limit_ns = 0;  // time for which a launch waits

  bool operator==(const OneShotArgs&) const = default;
};

// values[i] = sum over the ranks; count is at most kMostOneShotFloats.
void OneShotSum(const OneShotArgs& args, float* values, int64_t count, cudaStream_t stream);
// The same for norm.addend [rows, columns], and then the norm of norm.x with it. The sum itself is
// not stored. Only if CanSumAndNorm.
void OneShotSumAndNorm(const OneShotArgs& args, const AddNormArgs& norm, cudaStream_t stream);
constexpr bool CanSumAndNorm(int64_t rows, int64_t columns) {
  return rows <= kMostOneShotBlocks && rows * columns <= kMostOneShotFloats;
}

}  // namespace coppice::kernels::cuda
