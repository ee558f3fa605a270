#include <cstdlib>

#include "tests/kernels/cuda/device_memory.h"

namespace coppice::kernels::cuda {

void* AllocateForDevice(size_t bytes) { return std::aligned_alloc(256, bytes); }
void FreeForDevice(void* memory) { std::free(memory); }
void WaitForDevice() {}  // a launch runs at once
bool DeviceOverlapsLaunches() { return true; }
bool DeviceHasClusters() { return true; }
bool DeviceIsSimulated() { return true; }
void RunOverlapped(const std::function<void()>& enqueue) {
  std::vector<simt::Grid> grids;
  simt::CollectGrids(&grids);
  {
    const OverlapScope overlap(true);
    enqueue();
  }
  simt::CollectGrids(nullptr);
  simt::RunOverlapping(grids);
}

}  // namespace coppice::kernels::cuda
