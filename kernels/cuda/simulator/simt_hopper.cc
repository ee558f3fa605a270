// Barriers in shared memory, copies of boxes, and what products of a warpgroup need of the
// scheduler.
#include "kernels/cuda/simulator/simt_hopper.h"

#include "kernels/cuda/simulator/simt_fiber.h"

namespace coppice::kernels::cuda::simt {
namespace {

constexpr uint32_t kMostArrivals = 1024;

// The meaning of a barrier's 64 bits in the simulator.
struct BarrierState {
  uint64_t pending : 15, arrivals : 15, parity : 1, ready : 1;
  int64_t bytes : 32;  // bytes that are still to come
};
static_assert(sizeof(BarrierState) == sizeof(uint64_t));

BarrierState StateOf(const uint64_t* barrier) {
  const uint64_t word = *static_cast<const volatile uint64_t*>(barrier);
  BarrierState state;
  __builtin_memcpy(&state, &word, sizeof state);
  if (state.arrivals == 0 || state.arrivals > kMostArrivals) Fail("a barrier is not initialized");
  return state;
}

void Keep(uint64_t* barrier, BarrierState state) {
  if (state.pending == 0 && state.bytes == 0) {
    state.pending = state.arrivals;
    state.parity = state.parity ^ 1;
  }
  uint64_t word;
  __builtin_memcpy(&word, &state, sizeof word);
  *static_cast<volatile uint64_t*>(barrier) = word;
}

void WakeSleepers(const uint64_t* barrier) {
  for (Fiber* fiber : Current()->home->fibers) {
    if (!fiber->live || fiber->sleeps_for != barrier) continue;
    fiber->sleeps_for = nullptr;
    MakeReady(fiber);
  }
}

}  // namespace

AsyncProducts& CurrentProducts() {
  CheckWaited();
  return Current()->products;
}

unsigned char* SharedWindow() { return reinterpret_cast<unsigned char*>(Current()->home->shared); }

void InitBarrier(uint64_t* barrier, uint32_t arrivals) {
  if (arrivals == 0 || arrivals > kMostArrivals) Fail("a barrier of so many arrivals");
  Keep(barrier, {arrivals, arrivals, 0, 1, 0});
  Current()->home->barriers_ready = false;
}
void SetBarriersReady() { Current()->home->barriers_ready = true; }

void Arrive(uint64_t* barrier, uint32_t bytes) {
  CheckWaited();
  Fiber* const fiber = Current();
  if (!fiber->home->barriers_ready) Fail("a barrier is used before BarriersReady");
  for (const Fiber* lane : fiber->home->warps[fiber->index / 32].lanes) {
    if (lane != nullptr && lane->unshown)
      Fail("a warp arrives at a barrier with copies that were not shown (ShowToAsync)");
  }
  Yield();
  TsanRelease(barrier);
  BarrierState state = StateOf(barrier);
  if (state.pending == 0) Fail("more threads arrive at a barrier than it has");
  state.pending = state.pending - 1;
  state.bytes = state.bytes + bytes;
  Keep(barrier, state);
  WakeSleepers(barrier);
}

bool Passed(uint64_t* barrier, uint32_t parity) {
  if (!Current()->home->barriers_ready) Fail("a barrier is used before BarriersReady");
  if (StateOf(barrier).parity == (parity & 1)) return false;
  TsanAcquire(barrier);
  return true;
}

void CountBytes(uint64_t* barrier, uint32_t bytes) {
  TsanRelease(barrier);
  BarrierState state = StateOf(barrier);
  state.bytes = state.bytes - bytes;
  Keep(barrier, state);
  WakeSleepers(barrier);
}

void Sleep(uint64_t* barrier) {
  Fiber* const fiber = Current();
  fiber->sleeps_for = barrier;
  fiber->file = "BarrierWait";
  fiber->line = static_cast<int>(reinterpret_cast<char*>(barrier) - fiber->home->shared);
  RunAnother();
  fiber->file = nullptr;
}

void StartBox(const BoxCopy& copy) {
  Block* const block = Current()->home;
  if (!block->barriers_ready) Fail("a box is copied before BarriersReady");
  if (block->box_count == Block::kMaxBoxes) Fail("too many copies of boxes");
  TsanRelease(copy.barrier);
  block->boxes[block->box_count++] = copy;
  WakeSleepers(copy.barrier);
}

bool TakeBox(uint64_t* barrier, BoxCopy* copy) {
  Block* const block = Current()->home;
  for (unsigned i = 0; i < block->box_count; ++i) {
    if (block->boxes[i].barrier != barrier) continue;
    *copy = block->boxes[i];
    for (--block->box_count; i < block->box_count; ++i) block->boxes[i] = block->boxes[i + 1];
    TsanAcquire(barrier);
    return true;
  }
  return false;
}

void SetShown() { Current()->unshown = false; }

void MeetQuad(const uint32_t (&a)[4], uint32_t (&out)[16]) {
  MeetWarp(WarpOp::kQuad, kAllLanes, a, 4, out, 16, "MmaAsync", 0);
}

}  // namespace coppice::kernels::cuda::simt
