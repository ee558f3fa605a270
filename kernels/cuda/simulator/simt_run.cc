// The blocks of a launch: which run at a time, and in which order.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "kernels/cuda/simulator/simt_fiber.h"

namespace coppice::kernels::cuda::simt {
namespace {

// Each guard page splits a mapping, and Linux allows a process about 65,000 of these.
constexpr int kGuardedFibers = 8 << 10;
constexpr unsigned kMostCluster = 8;  // blocks
constexpr size_t kTsanPool = 1024;

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

std::unique_ptr<Block> StartBlock(const Grid& grid, const uint3& index, char* shared,
                                  size_t shared_bytes, const std::shared_ptr<Cluster>& cluster) {
  auto block = std::make_unique<Block>();
  block->grid = &grid;
  block->cluster = cluster;
  cluster->blocks.push_back(block.get());
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
    fiber->waited = !grid.overlaps && !scheduler.options.overlap && !scheduler.overlapping;
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
                     grid.dynamic_shared <= kMaxSharedBytes && grid.cluster > 0 &&
                     grid.cluster <= kMostCluster && g.y % grid.cluster == 0;
  if (legal) return;
  std::fprintf(stderr, "simt: a launch that the device refuses: grid %u %u %u, block %u %u %u\n",
               g.x, g.y, g.z, b.x, b.y, b.z);
  std::abort();
}

struct QueuedBlock {
  const Grid* grid;
  uint3 index;
  bool opens;  // the first of its cluster
};

// In the order of the grids; the blocks of a cluster follow each other.
std::vector<QueuedBlock> BlocksOf(const std::vector<Grid>& grids) {
  std::vector<QueuedBlock> blocks;
  for (const Grid& grid : grids) {
    CheckGrid(grid);
    for (unsigned z = 0; z < grid.grid.z; ++z) {
      for (unsigned first = 0; first < grid.grid.y; first += grid.cluster) {
        for (unsigned x = 0; x < grid.grid.x; ++x) {
          for (unsigned y = 0; y < grid.cluster; ++y) {
            blocks.push_back({&grid, uint3{x, first + y, z}, y == 0});
          }
        }
      }
    }
  }
  return blocks;
}

// The blocks of one run that have begun and not ended, and their shared memory.
class Residents {
 public:
  // most: blocks at a time, when no cluster makes it more.
  Residents(const std::vector<Grid>& grids, size_t blocks, size_t most) {
    Scheduler& s = scheduler;
    s.random = s.options.seed;
    current_lane = &s.main;
    s.main_bottom = nullptr;
    s.ring_head = s.ring_tail = 0;
    if (__tsan_get_current_fiber) s.main.tsan = __tsan_get_current_fiber();
    size_t cluster = 1;
    for (const Grid& grid : grids) {
      cluster = std::max<size_t>(cluster, grid.cluster);
      slice_ = std::max(slice_, kStaticSharedBytes + (grid.dynamic_shared + 127) / 64 * 64);
    }
    // With the thread sanitizer each block has memory of its own: it would take reuse for a race.
    const size_t slices = __tsan_acquire ? blocks : std::min(most + cluster - 1, blocks);
    bytes_ = slices * slice_;
    arena_ = static_cast<char*>(
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (size_t i = slices; i-- > 0;) free_.push_back(arena_ + i * slice_);
    TsanRelease(&s.start);
  }
  ~Residents() {
    TsanAcquire(&scheduler.end);
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(arena_, bytes_);
    munmap(arena_, bytes_);
  }
  Residents(const Residents&) = delete;
  Residents& operator=(const Residents&) = delete;

  size_t size() const { return active_.size(); }
  void Start(const QueuedBlock& block) {
    if (block.opens) cluster_ = std::make_shared<Cluster>();
    active_.push_back(StartBlock(*block.grid, block.index, free_.back(), slice_, cluster_));
    free_.pop_back();
  }
  // Runs threads until a block has ended; false: until none is ready.
  bool RunUntilOneEnds() {
    scheduler.finished = nullptr;
    Fiber* const fiber = PickReady();
    if (fiber == &scheduler.main) return false;
    Jump(fiber);
    Block* const ended = scheduler.finished;
    if (ended == nullptr) return false;
    for (Fiber* done : ended->fibers) scheduler.pool.push_back(done);
    if (!__tsan_acquire) free_.push_back(ended->shared);
    std::erase_if(active_, [&](const auto& block) { return block.get() == ended; });
    return true;
  }
  // Lets the threads of a launch go on behind WaitForPrevious, where all of them must be.
  void Release(const Grid* grid) {
    for (const auto& block : active_) {
      if (block->grid != grid) continue;
      for (const Fiber* fiber : block->fibers) {
        if (fiber->file != kWaitName) Fail("a thread never comes to WaitForPrevious", *block);
      }
      MakeAllReady(block->fibers);
    }
  }
  [[noreturn]] void FailOfDeadlock() const { Fail("deadlock", *active_[0]); }

 private:
  size_t slice_ = 0, bytes_ = 0;  // shared memory per block, and of all
  char* arena_ = nullptr;
  std::vector<char*> free_;
  std::vector<std::unique_ptr<Block>> active_;
  std::shared_ptr<Cluster> cluster_;  // of the block that was started last
};

}  // namespace

void Run(const std::vector<Grid>& grids) {
  std::lock_guard lock(scheduler.mutex);
  const std::vector<QueuedBlock> queue = BlocksOf(grids);
  SetOptionsFromEnvironment();
  const size_t resident = grids.size() > 1 ? queue.size() : scheduler.options.resident;
  Residents blocks(grids, queue.size(), resident);
  for (size_t next = 0; next < queue.size() || blocks.size() > 0;) {
    while (next < queue.size() && (blocks.size() < resident || !queue[next].opens)) {
      blocks.Start(queue[next++]);
    }
    if (!blocks.RunUntilOneEnds()) blocks.FailOfDeadlock();
  }
}

void RunOverlapping(const std::vector<Grid>& grids) {
  std::lock_guard lock(scheduler.mutex);
  const std::vector<QueuedBlock> queue = BlocksOf(grids);
  SetOptionsFromEnvironment();
  scheduler.overlapping = true;
  {
    Residents blocks(grids, queue.size(), queue.size());
    size_t next = 0;
    for (size_t i = 0; i <= grids.size(); ++i) {
      const size_t before = blocks.size();
      for (; next < queue.size() && queue[next].grid == &grids[i]; ++next) {
        blocks.Start(queue[next]);
      }
      const size_t begun = blocks.size() - before;
      while (blocks.RunUntilOneEnds()) {
      }
      if (i == 0) continue;
      blocks.Release(&grids[i - 1]);
      while (blocks.RunUntilOneEnds()) {
      }
      if (blocks.size() > begun) blocks.FailOfDeadlock();
    }
  }
  scheduler.overlapping = false;
}

}  // namespace coppice::kernels::cuda::simt
