// Where a launch goes: into a list, to the hook of a simulated stream, or straight to the
// scheduler.
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/cuda/simulator/simt.h"

namespace coppice::kernels::cuda::simt {
namespace {

std::mutex& hook_mutex = *new std::mutex;
Enqueue hook = nullptr;
thread_local Declared declared;
thread_local std::vector<Grid>* collected = nullptr;

Enqueue Hook() {
  std::lock_guard lock(hook_mutex);
  return hook;
}

}  // namespace

void SetEnqueue(Enqueue enqueue) {
  std::lock_guard lock(hook_mutex);
  hook = enqueue;
}

void Declare(const char* name, std::function<Cost()> cost) { declared = {name, std::move(cost)}; }
Declared TakeDeclared() { return std::exchange(declared, {}); }

void CollectGrids(std::vector<Grid>* grids) { collected = grids; }

void EnqueueGrid(void* stream, Grid grid) {
  if (collected != nullptr) {
    TakeDeclared();
    collected->push_back(std::move(grid));
    return;
  }
  if (const Enqueue enqueue = Hook(); enqueue != nullptr) {
    declared.blocks = int64_t{grid.grid.x} * grid.grid.y * grid.grid.z;
    declared.threads = int64_t{grid.block.x} * grid.block.y * grid.block.z;
    declared.overlaps = grid.overlaps;
    const LaunchKind kind = {grid.overlaps, grid.cluster};
    enqueue(stream, kind, [grid = std::move(grid)] { Run({grid}); });
  } else {
    TakeDeclared();
    Run({std::move(grid)});
  }
}

}  // namespace coppice::kernels::cuda::simt
