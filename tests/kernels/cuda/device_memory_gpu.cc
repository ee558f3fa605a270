#include <cstdio>
#include <cstdlib>

#include "tests/kernels/cuda/device_memory.h"

namespace coppice::kernels::cuda {
namespace {

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

void* AllocateForDevice(size_t bytes) {
  void* memory = nullptr;
  Check(cudaMallocManaged(&memory, bytes, cudaMemAttachGlobal), "cudaMallocManaged");
  return memory;
}
void FreeForDevice(void* memory) { Check(cudaFree(memory), "cudaFree"); }
void WaitForDevice() {
  Check(cudaGetLastError(), "launch");
  Check(cudaDeviceSynchronize(), "kernel");
}
bool DeviceOverlapsLaunches() {
  int device = 0, major = 0;
  Check(cudaGetDevice(&device), "cudaGetDevice");
  Check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        "cudaDeviceGetAttribute");
  return major >= 9;
}
bool DeviceHasClusters() { return DeviceOverlapsLaunches(); }  // both since 9.0
bool DeviceIsSimulated() { return false; }
void RunOverlapped(const std::function<void()>& enqueue) {
  const OverlapScope overlap(DeviceOverlapsLaunches());
  enqueue();
  WaitForDevice();
}

}  // namespace coppice::kernels::cuda
