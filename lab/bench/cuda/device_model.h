// What a device is assumed to reach, for predictions (predicted_step.h).
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace coppice::bench {

// One set of assumptions.
struct Ceilings {
  double bandwidth = 0;          // bytes a second read from memory
  double flops = 0;              // operations a second in bf16 products of cuBLASLt
  double mma_flops = 0;          // the same of our kernels (mma.sync)
  double library = 0;            // share of the bandwidth that products of cuBLASLt reach
  double cache_bandwidth = 0;    // bytes a second from the L2 cache
  double cache_bytes = 0;        // of the L2 cache
  double clock = 0;              // cycles a second
  double issue = 0;              // warp instructions a cycle and multiprocessor
  double stall = 0;              // cycles of an instruction that waits for the one before
  double load_us = 0;            // of a load that waits for the one before
  double memory_us = 0;          // from a load to its bytes, while memory is busy
  double overlap = 0;            // part of a kernel's second limit that hides behind the first
  double gap_us = 0;             // idle device between two launches
  double overlapped_gap_us = 0;  // the same where launches overlap (device/overlap.h)
  double handoff_us = 0;         // between a kernel and a copy, either way
  double host_bandwidth = 0;     // bytes a second between host and device
  double host_us = 0;            // device idle from the end of work to work that follows from it
  double copy_bandwidth = 0;     // bytes a second that the host copies in its memory
  int multiprocessors = 0;

  double cycles(double n) const { return 1e6 * n / clock; }  // microseconds
};

struct DeviceModel {
  std::string name;
  Ceilings optimistic, pessimistic;
};

// "h100" or "h200", of the form SXM. InvalidArgument names the known ones.
absl::StatusOr<DeviceModel> DeviceNamed(const std::string& name);

}  // namespace coppice::bench
