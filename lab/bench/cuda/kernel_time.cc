#include "lab/bench/cuda/kernel_time.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace coppice::bench {
namespace {

constexpr int64_t kDefaultLoads = 2;          // a pointer, then a value
constexpr int64_t kMostThreads = 2048;        // of a multiprocessor
constexpr double kSharedBytesPerCycle = 128;  // of a multiprocessor
constexpr double kCacheBytesPerCycle = 64;    // from the L2 cache to a multiprocessor

// The blocks of a launch on a device.
struct Placement {
  double multiprocessors = 0;  // that have a block
  double resident = 0;         // blocks at a time
  double waves = 1;

  Placement(const kernels::cuda::fake::Counted& launch, const Ceilings& c) {
    const int64_t blocks = launch.cost.blocks > 0 ? launch.cost.blocks : launch.blocks;
    const double all = c.multiprocessors;
    const int64_t fit = kMostThreads / std::max<int64_t>(launch.threads, 1);
    const int64_t of_one = launch.cost.resident > 0 ? launch.cost.resident : fit;
    const double held = all * static_cast<double>(std::max<int64_t>(of_one, 1));
    multiprocessors = blocks == 0 ? all : std::min<double>(all, static_cast<double>(blocks));
    resident = blocks == 0 ? held : std::min<double>(held, static_cast<double>(blocks));
    waves = blocks == 0 ? 1 : std::ceil(static_cast<double>(blocks) / held);
  }
};

double MemoryUs(const kernels::cuda::fake::Counted& launch, const Placement& placed,
                const Ceilings& c) {
  const double warm = static_cast<double>(launch.cost.bytes - launch.cost.cold_bytes);
  // Kernels of ours that stream weights or K and V read the rest of their operands again and again.
  const bool again = launch.blocks > 0 && launch.cost.cold_bytes > 0;
  const bool cached = again || warm <= c.cache_bytes / 2;
  const double bytes = static_cast<double>(cached ? launch.cost.cold_bytes : launch.cost.bytes);
  double rate = launch.blocks == 0 ? c.library * c.bandwidth : c.bandwidth;
  if (launch.blocks > 0) {
    const int64_t of_block =
        launch.cost.block_bytes > 0 ? launch.cost.block_bytes : 32 * launch.threads;
    rate = std::min(rate, placed.resident * static_cast<double>(of_block) / (c.memory_us * 1e-6));
    rate = std::min(rate, placed.multiprocessors * kCacheBytesPerCycle * c.clock);
  }
  return 1e6 * bytes / rate;
}

}  // namespace

const char* NameOf(Limit limit) {
  switch (limit) {
    case Limit::kMemory:
      return "memory";
    case Limit::kCache:
      return "L2 cache";
    case Limit::kArithmetic:
      return "arithmetic";
    case Limit::kInstructions:
      return "instructions";
    case Limit::kSharedMemory:
      return "shared memory";
    case Limit::kLatency:
      break;
  }
  return "latency";
}

KernelTime TimeOf(const kernels::cuda::fake::Counted& launch, const Ceilings& c) {
  const kernels::cuda::LaunchCost& cost = launch.cost;
  const Placement placed(launch, c);
  const double share = placed.multiprocessors / c.multiprocessors;
  const double cycles = placed.multiprocessors * c.clock * 1e-6;    // a microsecond
  const double flops = launch.blocks == 0 ? c.flops : c.mma_flops;  // 0: cuBLASLt
  const double cache = std::min(c.cache_bandwidth, kCacheBytesPerCycle * cycles * 1e6);
  struct Part {
    double us;
    Limit limit;
  };
  // Memory and cache are one way, whose slower part counts.
  const double memory_us = MemoryUs(launch, placed, c);
  const double cache_us = 1e6 * static_cast<double>(cost.bytes) / cache;
  Part parts[] = {
      {std::max(memory_us, cache_us), memory_us >= cache_us ? Limit::kMemory : Limit::kCache},
      {1e6 * static_cast<double>(cost.flops) / (flops * share), Limit::kArithmetic},
      {static_cast<double>(cost.instructions) / (c.issue * cycles), Limit::kInstructions},
      {static_cast<double>(cost.shared_bytes) / (kSharedBytesPerCycle * cycles),
       Limit::kSharedMemory},
      {placed.waves * c.cycles(static_cast<double>(cost.serial_instructions) * c.stall),
       Limit::kLatency},
  };
  std::partial_sort(std::begin(parts), std::begin(parts) + 2, std::end(parts),
                    [](const Part& a, const Part& b) { return a.us > b.us; });
  const int64_t loads = cost.dependent_loads > 0 ? cost.dependent_loads : kDefaultLoads;
  const double start = static_cast<double>(loads) * c.load_us;
  const double second = (1 - c.overlap) * parts[1].us;
  return {start + parts[0].us + second, start > parts[0].us ? Limit::kLatency : parts[0].limit};
}

double EarlyUs(const kernels::cuda::fake::Counted& launch, const Ceilings& c) {
  if (!launch.overlaps) return 0;
  const double bytes = Placement(launch, c).resident * static_cast<double>(launch.cost.early_bytes);
  return 1e6 * std::min(bytes, static_cast<double>(launch.cost.cold_bytes)) / c.bandwidth;
}

}  // namespace coppice::bench
