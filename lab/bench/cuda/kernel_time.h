// How long one launch takes under assumptions about the device, by what it declares
// (kernels/cuda/device/cost.h). Pure.
#pragma once

#include "kernels/cuda/simulator/fake/fake_device.h"
#include "lab/bench/cuda/device_model.h"

namespace coppice::bench {

// What a launch takes longest for.
enum class Limit { kMemory, kCache, kArithmetic, kInstructions, kSharedMemory, kLatency };
const char* NameOf(Limit limit);

struct KernelTime {
  double us = 0;
  Limit limit = Limit::kLatency;
};

// The launch's chain of loads, then the longest of:
// - cold bytes from memory, at the bandwidth, or what its resident blocks keep on their way in
//   memory_us if that is less; all bytes where those of an activation or of cuBLASLt do not fit half
//   of the cache;
// - all bytes from the L2 cache;
// - operations, instructions and bytes of shared memory, by the multiprocessors that have a block;
// - chains of instructions, one after the other where a multiprocessor holds too few blocks.
// Of the second longest, the part that `overlap` leaves. The gap to the next launch is not in it.
KernelTime TimeOf(const kernels::cuda::fake::Counted& launch, const Ceilings& ceilings);

// Microseconds of memory time that a launch has behind it when it begins, if it overlaps: the weights
// that its resident blocks fetch early.
double EarlyUs(const kernels::cuda::fake::Counted& launch, const Ceilings& ceilings);

}  // namespace coppice::bench
