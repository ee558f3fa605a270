// The scheduler: fibers, barriers, shared memory and the blocks of a launch.
#include "kernels/cuda/simulator/simt.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "kernels/cuda/simulator/simt_fiber.h"

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

// Saves the callee-saved registers and the stack pointer, and goes on where `load` was saved.
extern "C" void coppice_simt_swap(void** save, void* load);
asm(R"(.text
.globl coppice_simt_swap
.type coppice_simt_swap,@function
coppice_simt_swap:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp,(%rdi); movq %rsi,%rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp; ret
.size coppice_simt_swap,.-coppice_simt_swap
)");

namespace coppice::kernels::cuda::simt {

Lane* current_lane;

namespace {

constexpr size_t kStackBytes = 256 << 10;
// Each guard page splits a mapping, and Linux allows a process about 65,000 of these.
constexpr int kGuardedFibers = 8 << 10;
constexpr size_t kStaticSharedBytes = 48 << 10;  // with the red zones
// Static and dynamic shared memory of a block together, compute capability 9.0.
constexpr size_t kMaxSharedBytes = 227 << 10;
constexpr size_t kRing = 1 << 17;  // ready fibers, at most
constexpr size_t kTsanPool = 1024;
constexpr unsigned kTsanNoSync = 1;

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
  std::deque<Fiber*> pool;
  int guarded = 0;  // number of fibers whose stacks have guard pages
  char start, end;  // addresses by which the thread sanitizer knows the edges of a launch
};
Scheduler& scheduler = *new Scheduler;

void SetOptionsFromEnvironment() {
  Options& options = scheduler.options;
  options = Options();
  if (const char* order = std::getenv("DEV_ORDER")) {
    const std::string_view name = order;
    if (name == "random") options.order = Order::kRandom;
    if (name == "reverse") options.order = Order::kReverse;
  }
  if (const char* seed = std::getenv("DEV_SEED")) options.seed = std::strtoull(seed, nullptr, 0);
  options.overlap = std::getenv("DEV_OVERLAP") != nullptr;
  if (const char* resident = std::getenv("DEV_RESIDENT")) {
    options.resident = static_cast<unsigned>(std::max(1, std::atoi(resident)));
  }
}

void Jump(Fiber* to, bool dying = false) {
  Fiber* from = Current();
  if (from == to) return;
  current_lane = to;
  const bool to_main = to == &scheduler.main;
  if (__sanitizer_start_switch_fiber) {
    __sanitizer_start_switch_fiber(dying ? nullptr : &from->fake_stack,
                                   to_main ? scheduler.main_bottom : to->stack,
                                   to_main ? scheduler.main_size : kStackBytes);
  }
  if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(to->tsan, kTsanNoSync);
  coppice_simt_swap(&from->stack_pointer, to->stack_pointer);
  if (__sanitizer_finish_switch_fiber) {
    __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
  }
}

Fiber* PickReady() {
  Scheduler& s = scheduler;
  if (s.ring_head == s.ring_tail) return &s.main;
  if (s.options.order == Order::kRandom) {
    s.random = s.random * 6364136223846793005ull + 1442695040888963407ull;
    const size_t chosen = s.ring_head + (s.random >> 33) % (s.ring_tail - s.ring_head);
    std::swap(s.ring[s.ring_head % kRing], s.ring[chosen % kRing]);
  }
  return s.ring[s.ring_head++ % kRing];
}

void MakeAllReady(const std::vector<Fiber*>& fibers) {
  const size_t count = fibers.size();
  for (size_t i = 0; i < count; ++i) {
    Fiber* fiber = fibers[scheduler.options.order == Order::kReverse ? count - 1 - i : i];
    if (fiber->live) MakeReady(fiber);
  }
}

void TryReleaseBlock(Block* block) {
  if (block->live == 0 || block->at_barrier != block->live) return;
  const Fiber* first = nullptr;
  for (const Fiber* fiber : block->fibers) {
    if (!fiber->live) continue;
    if (first == nullptr) first = fiber;
    if (fiber->line != first->line || fiber->file != first->file) {
      Fail("threads of one block at different __syncthreads()", *block);
    }
  }
  block->at_barrier = 0;
  ++block->generation;
  MakeAllReady(block->fibers);
}

void FiberMain() {
  Fiber* fiber = Current();
  if (__sanitizer_finish_switch_fiber) {
    const void* bottom = nullptr;
    size_t size = 0;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
    if (scheduler.main_bottom == nullptr) {  // the first fiber comes from the launching thread
      scheduler.main_bottom = bottom;
      scheduler.main_size = size;
    }
  }
  TsanAcquire(&scheduler.start);
  Block* block = fiber->home;
  block->grid->body();
  if (fiber->copy_head != fiber->copy_tail) Fail("a thread ends with copies in flight", *block);
  if (fiber->products.count != 0) Fail("a thread ends with products that run", *block);
  CheckWaited();
  TsanRelease(&scheduler.end);
  fiber->live = false;
  fiber->file = nullptr;
  Warp& warp = block->warps[fiber->index / 32];
  warp.live &= ~(1u << fiber->lane);
  if (--block->live == 0) {
    if (block->box_count != 0) Fail("a block ends with copies of boxes in flight", *block);
    scheduler.finished = block;
    Jump(&scheduler.main, /*dying=*/true);
  }
  TryReleaseBlock(block);
  for (Fiber* other : warp.lanes) {
    if (other != nullptr && (warp.waiting >> other->lane & 1) && TryReleaseWarp(other)) {
      MakeReady(other);
      break;
    }
  }
  Jump(PickReady(), /*dying=*/true);
  __builtin_trap();
}

// With the thread sanitizer fibers come from a large pool in turn, so that the threads of later
// blocks are different threads to it.
Fiber* TakeFiber() {
  if (scheduler.pool.size() > (__tsan_create_fiber ? kTsanPool : 0)) {
    Fiber* fiber = scheduler.pool.front();
    scheduler.pool.pop_front();
    return fiber;
  }
  auto* fiber = new Fiber;
  void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED) {
    std::perror("simt: no memory for the stack of a thread");
    std::abort();
  }
  fiber->stack = static_cast<char*>(stack);
  if (scheduler.guarded < kGuardedFibers) {
    mprotect(stack, 4096, PROT_NONE);
    ++scheduler.guarded;
  }
  if (__tsan_create_fiber) fiber->tsan = __tsan_create_fiber(0);
  return fiber;
}

// At least 32 bytes of red zone behind each array.
void* CarveShared(Block* block, size_t bytes) {
  block->shared_bytes += (bytes + 15) / 16 * 16;
  if (block->shared_bytes > kMaxSharedBytes) {
    Fail("a launch that the device refuses: static and dynamic shared memory together", *block);
  }
  char* memory = block->shared_top;
  block->shared_top += (bytes + 63) / 32 * 32;
  if (block->shared_top > block->shared + kStaticSharedBytes + block->grid->dynamic_shared) {
    Fail("shared memory is exhausted", *block);
  }
  if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(memory, bytes);
  return memory;
}

std::unique_ptr<Block> StartBlock(const Grid& grid, const uint3& index, char* shared,
                                  size_t shared_bytes) {
  auto block = std::make_unique<Block>();
  block->grid = &grid;
  block->shared = block->shared_top = shared;
  for (size_t i = 0; i < shared_bytes / 4; ++i) {
    reinterpret_cast<volatile uint32_t*>(shared)[i] = 0xffffffffu;  // NaN
  }
  if (__asan_poison_memory_region) __asan_poison_memory_region(shared, shared_bytes);
  if (grid.dynamic_shared > 0) block->dynamic = CarveShared(block.get(), grid.dynamic_shared);
  const dim3& size = grid.block;
  const unsigned threads = size.x * size.y * size.z;
  block->live = threads;
  block->warps.resize((threads + 31) / 32);
  for (unsigned i = 0; i < threads; ++i) {
    Fiber* fiber = TakeFiber();
    fiber->thread = uint3{i % size.x, i / size.x % size.y, i / (size.x * size.y)};
    fiber->block = index;
    fiber->block_size = size;
    fiber->grid_size = grid.grid;
    fiber->lane = i % 32;
    fiber->index = i;
    fiber->home = block.get();
    fiber->live = true;
    fiber->file = nullptr;
    fiber->waited = !grid.overlaps && !scheduler.options.overlap;
    fiber->copy_head = fiber->copy_tail = fiber->group_head = fiber->group_tail = 0;
    fiber->unshown = false;
    fiber->sleeps_for = nullptr;
    fiber->products.Clear();
    block->warps[i / 32].lanes[i % 32] = fiber;
    block->warps[i / 32].live |= 1u << i % 32;
    // The swap pops six registers and returns into FiberMain with the stack as after a call.
    void** top = reinterpret_cast<void**>(fiber->stack + kStackBytes) - 2;
    *top = reinterpret_cast<void*>(+FiberMain);
    fiber->stack_pointer = top - 6;
    block->fibers.push_back(fiber);
  }
  MakeAllReady(block->fibers);
  return block;
}

void CheckGrid(const Grid& grid) {
  const dim3 &g = grid.grid, &b = grid.block;
  const bool legal = g.x > 0 && g.x <= 0x7fffffffu && g.y > 0 && g.y <= 65535 && g.z > 0 &&
                     g.z <= 65535 && b.x > 0 && b.y > 0 && b.z > 0 && b.x <= 1024 && b.y <= 1024 &&
                     b.z <= 64 && size_t{b.x} * b.y * b.z <= 1024 &&
                     grid.dynamic_shared <= kMaxSharedBytes;
  if (legal) return;
  std::fprintf(stderr, "simt: a launch that the device refuses: grid %u %u %u, block %u %u %u\n",
               g.x, g.y, g.z, b.x, b.y, b.z);
  std::abort();
}

struct QueuedBlock {
  const Grid* grid;
  uint3 index;
};

std::vector<QueuedBlock> BlocksOf(const std::vector<Grid>& grids) {
  std::vector<QueuedBlock> blocks;
  for (const Grid& grid : grids) {
    CheckGrid(grid);
    for (unsigned z = 0; z < grid.grid.z; ++z) {
      for (unsigned y = 0; y < grid.grid.y; ++y) {
        for (unsigned x = 0; x < grid.grid.x; ++x) blocks.push_back({&grid, uint3{x, y, z}});
      }
    }
  }
  return blocks;
}

}  // namespace

Fiber* Current() { return static_cast<Fiber*>(current_lane); }
void MakeReady(Fiber* fiber) { scheduler.ring[scheduler.ring_tail++ % kRing] = fiber; }
void RunAnother() { Jump(PickReady()); }
void TsanAcquire(void* address) {
  if (__tsan_acquire) __tsan_acquire(address);
}
void TsanRelease(void* address) {
  if (__tsan_release) __tsan_release(address);
}

void Fail(const char* what, const Block& block) {
  const uint3& index = block.fibers[0]->block;
  std::fprintf(stderr, "simt: %s, block (%u, %u, %u)\n", what, index.x, index.y, index.z);
  for (const Fiber* fiber : block.fibers) {
    if (!fiber->live || fiber->file == nullptr) continue;
    std::fprintf(stderr, "  thread %u waits at %s:%d (mask %08x)\n", fiber->index, fiber->file,
                 fiber->line, fiber->mask);
  }
  std::abort();
}
void Fail(const char* what) { Fail(what, *Current()->home); }

void Yield() {
  MakeReady(Current());
  RunAnother();
}

void Spin() {
  constexpr uint64_t kOften = 256;
  if (++scheduler.spins % kOften == 0) usleep(50);
  Yield();
}

uint64_t NanoSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

void CheckWaited() {
  if (!current_lane->waited) Fail("a thread does not begin with WaitForPrevious");
}

void BlockBarrier(const char* file, int line) {
  CheckWaited();
  Fiber* fiber = Current();
  Block* block = fiber->home;
  char* barrier = &block->barrier[block->generation & 1];
  fiber->file = file;
  fiber->line = line;
  ++block->at_barrier;
  TsanRelease(barrier);
  TryReleaseBlock(block);
  RunAnother();
  TsanAcquire(barrier);
  fiber->file = nullptr;
}

void* SharedArray(const void* key, size_t bytes) {
  Block* block = Current()->home;
  for (unsigned i = 0; i < block->num_arrays; ++i) {
    if (block->arrays[i].key == key) return block->arrays[i].memory;
  }
  if (block->num_arrays == Block::kMaxArrays) Fail("too many shared arrays");
  void* memory = CarveShared(block, bytes);
  block->arrays[block->num_arrays++] = {key, memory};
  return memory;
}

void* DynamicShared() { return Current()->home->dynamic; }

void Run(const std::vector<Grid>& grids) {
  Scheduler& s = scheduler;
  std::lock_guard lock(s.mutex);
  SetOptionsFromEnvironment();
  s.random = s.options.seed;
  current_lane = &s.main;
  s.main_bottom = nullptr;
  s.ring_head = s.ring_tail = 0;
  if (__tsan_get_current_fiber) s.main.tsan = __tsan_get_current_fiber();
  const std::vector<QueuedBlock> queue = BlocksOf(grids);
  size_t slice = 0;  // bytes of shared memory per block
  for (const Grid& grid : grids) {
    slice = std::max(slice, kStaticSharedBytes + (grid.dynamic_shared + 127) / 64 * 64);
  }
  const size_t resident = grids.size() > 1 ? queue.size() : s.options.resident;
  // With the thread sanitizer each block has memory of its own: it would take reuse for a race.
  const size_t slices = __tsan_acquire ? queue.size() : std::min(resident, queue.size());
  char* arena = static_cast<char*>(
      mmap(nullptr, slices * slice, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::vector<char*> free_slices;
  for (size_t i = slices; i-- > 0;) free_slices.push_back(arena + i * slice);
  TsanRelease(&s.start);
  std::vector<std::unique_ptr<Block>> active;
  for (size_t next = 0; next < queue.size() || !active.empty();) {
    for (; next < queue.size() && active.size() < resident; ++next) {
      active.push_back(StartBlock(*queue[next].grid, queue[next].index, free_slices.back(), slice));
      free_slices.pop_back();
    }
    s.finished = nullptr;
    Fiber* fiber = PickReady();
    if (fiber == &s.main) Fail("deadlock", *active[0]);
    Jump(fiber);
    if (s.finished == nullptr) continue;
    for (Fiber* done : s.finished->fibers) s.pool.push_back(done);
    if (!__tsan_acquire) free_slices.push_back(s.finished->shared);
    std::erase_if(active, [&](const auto& block) { return block.get() == s.finished; });
  }
  TsanAcquire(&s.end);
  if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(arena, slices * slice);
  munmap(arena, slices * slice);
}

}  // namespace coppice::kernels::cuda::simt
