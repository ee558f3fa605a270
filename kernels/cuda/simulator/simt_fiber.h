// What the parts of the simulator share: fibers, warps and blocks. Only simt*.cc include it, and
// they are compiled without sanitizers, so that their own bookkeeping stays invisible.
// While fibers run nothing here may use the heap: the thread sanitizer would see that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/simulator/simt.h"
#include "kernels/cuda/simulator/simt_hopper.h"

namespace coppice::kernels::cuda::simt {

struct Block;

struct Fiber : Lane {
  char* stack = nullptr;
  void* stack_pointer = nullptr;
  void* tsan = nullptr;        // state of the thread in the thread sanitizer
  void* fake_stack = nullptr;  // state in the address sanitizer
  Block* home = nullptr;
  unsigned index = 0;  // index in the block
  bool live = false;
  // The operation it waits in.
  WarpOp op = WarpOp::kNone;
  unsigned mask = 0;
  const char* file = nullptr;  // nullptr: it does not wait
  int line = 0;
  uint32_t in[10], out[16];
  const void* sleeps_for = nullptr;  // the barrier in shared memory that it waits for
  AsyncProducts products;
};

struct Warp {
  Fiber* lanes[32] = {};
  uint32_t live = 0, waiting = 0;  // bits by lane
  uint64_t generation = 0;
  char sync[2];  // addresses by which the thread sanitizer knows a __syncwarp, used in turn
};

struct Block {
  static constexpr unsigned kMaxArrays = 32, kMaxBoxes = 256;

  const Grid* grid = nullptr;
  std::vector<Fiber*> fibers;
  std::vector<Warp> warps;
  unsigned live = 0, at_barrier = 0;
  uint64_t generation = 0;
  char barrier[2];
  char *shared = nullptr, *shared_top = nullptr;
  void* dynamic = nullptr;
  size_t shared_bytes = 0;  // of all arrays, as the device lays them out
  struct {
    const void* key;
    void* memory;
  } arrays[kMaxArrays];
  unsigned num_arrays = 0;
  bool barriers_ready = true;  // no barriers, or all of them
  BoxCopy boxes[kMaxBoxes];    // copies in flight
  unsigned box_count = 0;
};

Fiber* Current();
void MakeReady(Fiber* fiber);
void RunAnother();  // the current fiber stays away until it is made ready
[[noreturn]] void Fail(const char* what, const Block& block);

// Releases the lanes that wait with `fiber` in one operation, if all have arrived; `fiber` itself
// is not made ready.
bool TryReleaseWarp(Fiber* fiber);

// Synchronisation for the thread sanitizer; does nothing without it.
void TsanAcquire(void* address);
void TsanRelease(void* address);

}  // namespace coppice::kernels::cuda::simt
