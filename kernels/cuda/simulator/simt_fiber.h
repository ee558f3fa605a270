// What the parts of the simulator share: fibers, warps, blocks, clusters and the scheduler. Only
// simt*.cc include it, and they are compiled without sanitizers, so that their own bookkeeping stays
// invisible. While fibers run nothing here may use the heap: the thread sanitizer would see that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/cuda/simulator/simt.h"
#include "kernels/cuda/simulator/simt_hopper.h"

// Present in programs that are linked with the sanitizer.
#define SIMT_WEAK extern "C" __attribute__((weak))
SIMT_WEAK void* __tsan_create_fiber(unsigned flags);
SIMT_WEAK void* __tsan_get_current_fiber();
SIMT_WEAK void __tsan_switch_to_fiber(void* fiber, unsigned flags);
SIMT_WEAK void __tsan_acquire(void* address);
SIMT_WEAK void __tsan_release(void* address);
SIMT_WEAK void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, size_t size);
SIMT_WEAK void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom, size_t* size);
SIMT_WEAK void __asan_poison_memory_region(const volatile void* address, size_t size);
SIMT_WEAK void __asan_unpoison_memory_region(const volatile void* address, size_t size);

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

// Blocks that run together and read each other's shared memory.
struct Cluster {
  std::vector<Block*> blocks;  // by rank; nullptr: it has ended
  unsigned at_barrier = 0;
  uint64_t generation = 0;
  char barrier[2];
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
  std::shared_ptr<Cluster> cluster;  // of this block alone, unless the launch has clusters
};

inline constexpr size_t kStackBytes = 256 << 10;
inline constexpr size_t kStaticSharedBytes = 48 << 10;  // with the red zones
// Static and dynamic shared memory of a block together, compute capability 9.0.
inline constexpr size_t kMaxSharedBytes = 227 << 10;
inline constexpr size_t kRing = 1 << 17;  // ready fibers, at most
inline constexpr char kWaitName[] = "WaitForPrevious";

struct Options {
  Order order = Order::kForward;
  uint64_t seed = 1;
  unsigned resident = 1;  // blocks at a time
  bool overlap = false;
};

struct Scheduler {
  std::mutex mutex;  // held for one launch at a time
  Options options;
  Fiber main;  // the OS thread that launches
  const void* main_bottom = nullptr;
  size_t main_size = 0;
  Fiber* ring[kRing];
  size_t ring_head = 0, ring_tail = 0;
  uint64_t random = 0, spins = 0;
  Block* finished = nullptr;
  bool overlapping = false;  // RunOverlapping
  std::deque<Fiber*> pool;
  int guarded = 0;  // number of fibers whose stacks have guard pages
  char start, end;  // addresses by which the thread sanitizer knows the edges of a launch
};
extern Scheduler& scheduler;

Fiber* Current();
void FiberMain();  // what a fiber begins with
void Jump(Fiber* to, bool dying = false);
Fiber* PickReady();  // the main fiber when none is ready
void MakeReady(Fiber* fiber);
void MakeAllReady(const std::vector<Fiber*>& fibers);
void RunAnother();  // the current fiber stays away until it is made ready
[[noreturn]] void Fail(const char* what, const Block& block);
void* CarveShared(Block* block, size_t bytes);

// Releases the lanes that wait with `fiber` in one operation, if all have arrived; `fiber` itself
// is not made ready.
bool TryReleaseWarp(Fiber* fiber);
// Releases the threads that wait at a barrier of the cluster, if all have arrived.
void TryReleaseCluster(Cluster* cluster);

// Synchronisation for the thread sanitizer; does nothing without it.
void TsanAcquire(void* address);
void TsanRelease(void* address);

}  // namespace coppice::kernels::cuda::simt
