// Fibers, barriers and shared memory.
#include "kernels/cuda/simulator/simt.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "kernels/cuda/simulator/simt_fiber.h"

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
Scheduler& scheduler = *new Scheduler;

namespace {

constexpr unsigned kTsanNoSync = 1;

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

}  // namespace

Fiber* Current() { return static_cast<Fiber*>(current_lane); }
void MakeReady(Fiber* fiber) { scheduler.ring[scheduler.ring_tail++ % kRing] = fiber; }
void Jump(Fiber* to, bool dying) {
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

void RunAnother() { Jump(PickReady()); }
void TsanAcquire(void* address) {
  if (__tsan_acquire) __tsan_acquire(address);
}
void TsanRelease(void* address) {
  if (__tsan_release) __tsan_release(address);
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
    for (Block*& peer : block->cluster->blocks) {
      if (peer == block) peer = nullptr;
    }
    TryReleaseCluster(block->cluster.get());
    scheduler.finished = block;
    Jump(&scheduler.main, /*dying=*/true);
  }
  TryReleaseBlock(block);
  TryReleaseCluster(block->cluster.get());
  for (Fiber* other : warp.lanes) {
    if (other != nullptr && (warp.waiting >> other->lane & 1) && TryReleaseWarp(other)) {
      MakeReady(other);
      break;
    }
  }
  Jump(PickReady(), /*dying=*/true);
  __builtin_trap();
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

void WaitForPrevious() {
  Fiber* const fiber = Current();
  if (scheduler.overlapping && !fiber->waited) {
    fiber->file = kWaitName;
    fiber->line = 0;
    RunAnother();
    fiber->file = nullptr;
    TsanAcquire(&scheduler.end);
  }
  fiber->waited = true;
}

}  // namespace coppice::kernels::cuda::simt
