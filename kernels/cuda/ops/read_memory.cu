// Reading alone: every thread has several loads in flight, as the bandwidth of HBM needs.
#include <algorithm>

#include "kernels/cuda/ops/kernel_types.h"
#include "kernels/cuda/ops/read_memory.h"

namespace coppice::kernels::cuda {
namespace {

constexpr int kThreads = kReadWarps * dev::kWarpSize;
constexpr int kLoads = 4;                      // of a thread, in flight
constexpr int kBlocksPerMultiprocessor = 8;    // all its threads: 128 KiB in flight
constexpr int64_t kPiece = kThreads * kLoads;  // units that a block reads at once

DEV_KERNEL void ReadUnits(ReadArgs args) {
  dev::WaitForPrevious();
  const auto* const units = static_cast<const uint32_t*>(args.data);
  const int64_t count = args.bytes / kReadUnit;
  uint32_t sum = 0;
  for (int64_t piece = blockIdx.x * kPiece; piece < count; piece += gridDim.x * kPiece) {
    dev::Pack<uint32_t, 4> unit[kLoads];
    DEV_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      const int64_t place = piece + i * kThreads + threadIdx.x;
      unit[i] = place < count ? dev::LoadPack<4>(units + 4 * place) : dev::Pack<uint32_t, 4>{};
    }
    DEV_UNROLL
    for (int i = 0; i < kLoads; ++i)
      sum ^= unit[i].value[0] ^ unit[i].value[1] ^ unit[i].value[2] ^ unit[i].value[3];
  }
  for (int step = dev::kWarpSize / 2; step > 0; step /= 2)
    sum ^= __shfl_xor_sync(dev::kFullWarp, sum, step);
  const int warp = static_cast<int>(threadIdx.x) / dev::kWarpSize;
  if (threadIdx.x % dev::kWarpSize == 0) args.sums[blockIdx.x * kReadWarps + warp] = sum;
}

}  // namespace

int ReadBlocks(int64_t bytes, int multiprocessors) {
  const int64_t pieces = CeilDiv(bytes / kReadUnit, kPiece);
  return static_cast<int>(
      std::clamp<int64_t>(pieces, 1, int64_t{kBlocksPerMultiprocessor} * multiprocessors));
}

void ReadMemory(const ReadArgs& args, int blocks, cudaStream_t stream) {
  dev::Declare("read", [args] { return dev::Cost{args.bytes, 0}; });
  dev::Launch(ReadUnits, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, stream, args);
}

}  // namespace coppice::kernels::cuda
