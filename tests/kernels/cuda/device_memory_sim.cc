#include <cstdlib>

#include "tests/kernels/cuda/device_memory.h"

namespace coppice::kernels::cuda {

void* AllocateForDevice(size_t bytes) { return std::aligned_alloc(256, bytes); }
void FreeForDevice(void* memory) { std::free(memory); }
void WaitForDevice() {}  // a launch runs at once
bool DeviceOverlapsLaunches() { return true; }
bool DeviceIsSimulated() { return true; }

}  // namespace coppice::kernels::cuda
