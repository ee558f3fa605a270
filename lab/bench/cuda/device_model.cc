#include "lab/bench/cuda/device_model.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace coppice::bench {
namespace {

// Both devices have the same processor. Where the figures come from:
// - bandwidth: data sheets say 3.35 TB/s (H100) and 4.8 (H200). Published copies reach 3.0 to
//   3.1 on an H100; one was measured at 4.3 on an H200. Reading alone may be faster.
// - flops: 989 TFLOP/s on the data sheet. 790 was measured on an H200 with random values; 600 to
//   700 are usual reports of an H100 at its power limit.
// - mma_flops: mma.sync reaches 63 % of wgmma's peak (arXiv 2501.12084); pessimistic 40 %.
// - cache_bandwidth: 5.5 to 7 TB/s, cache_bytes: 50 MB (chipsandcheese.com, H100, 2023).
// - clock: boost 1.755 to 1.98 GHz by data sheets; less at the power limit.
// - issue: at most 4. stall: 4 cycles of arithmetic, some 25 of shared memory; loops mix them.
// - load_us: L2 200 to 260 cycles, memory 400 to 480, idle (arXiv 2402.13499; PMC10448217).
// - gap_us: 1.3 between nodes of a CUDA graph on H100 (hazyresearch.stanford.edu, "no bubbles",
//   2025). library, overlapped_gap_us, memory_us, overlap, handoff_us: estimates, no source.
// - host_bandwidth: PCIe 5.0 x16. host_us: an estimate; Submit alone takes 34 to 46 us of one core
//   (lab/measurements/2026-11-23-cuda-goals.md). copy_bandwidth: an estimate.
constexpr Ceilings kOptimistic = {
    .bandwidth = 3.0e12,
    .flops = 620e12,
    .mma_flops = 620e12,
    .library = 1,
    .cache_bandwidth = 6.5e12,
    .cache_bytes = 50e6,
    .clock = 1.755e9,
    .issue = 3.6,
    .stall = 4,
    .load_us = 0.15,
    .memory_us = 0.55,
    .overlap = 1,
    .gap_us = 1.0,
    .overlapped_gap_us = 0.3,
    .handoff_us = 3,
    .host_bandwidth = 50e9,
    .host_us = 50,
    .copy_bandwidth = 10e9,
    .multiprocessors = 132,
};

Ceilings Pessimistic() {
  Ceilings c = kOptimistic;
  c.bandwidth = 2.8e12;
  c.flops = 500e12;
  c.mma_flops = 400e12;
  c.library = 0.9;
  c.cache_bandwidth = 5.0e12;
  c.clock = 1.6e9;
  c.issue = 2.8;
  c.stall = 8;
  c.load_us = 0.35;
  c.memory_us = 0.8;
  c.overlap = 0.5;
  c.gap_us = 1.6;
  c.overlapped_gap_us = 0.8;
  c.handoff_us = 5;
  c.host_bandwidth = 40e9;
  c.host_us = 150;
  c.copy_bandwidth = 5e9;
  return c;
}

}  // namespace

absl::StatusOr<DeviceModel> DeviceNamed(const std::string& name) {
  DeviceModel device = {name, kOptimistic, Pessimistic()};
  if (name == "h100") return device;
  if (name != "h200") {
    return absl::InvalidArgumentError(absl::StrCat("device '", name, "', expected h100 or h200"));
  }
  device.optimistic.bandwidth = 4.3e12;
  device.pessimistic.bandwidth = 4.0e12;
  device.optimistic.flops = 790e12;
  device.pessimistic.flops = 620e12;
  return device;
}

}  // namespace coppice::bench
