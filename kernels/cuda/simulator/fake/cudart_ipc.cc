// Memory of one process opened by another (CUDA IPC): an anonymous file, which the other process
// opens by the exporter's file descriptor.
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cuda/simulator/fake/device_state.h"

namespace coppice::kernels::cuda::fake {
namespace {

// The contents of a handle.
struct Exported {
  int32_t process, file;
  uint64_t accessible, offset, bytes;
};
static_assert(sizeof(Exported) <= sizeof(cudaIpcMemHandle_t));

constexpr size_t kOpenersBytes = 4096;
constexpr int kMostOpeners = 64;

// nullptr: not mapped.
std::atomic<int32_t>* MapOpeners(int file, size_t behind) {
  void* page = mmap(nullptr, kOpenersBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file,
                    static_cast<off_t>(behind));
  return page == MAP_FAILED ? nullptr : static_cast<std::atomic<int32_t>*>(page);
}

// Replaces one entry `from` by `to`.
void ReplaceOpener(std::atomic<int32_t>* openers, int32_t from, int32_t to) {
  for (int i = 0; i < kMostOpeners; ++i) {
    int32_t found = from;
    if (openers[i].compare_exchange_strong(found, to)) return;
  }
}

}  // namespace

void DeviceState::CloseExport(const Buffer& buffer) {
  for (int i = 0; i < kMostOpeners; ++i) {
    const int32_t opener = buffer.openers[i];
    if (opener != 0 && kill(opener, 0) == 0)
      Violate("memory is freed that another process has open");
  }
  munmap(buffer.openers, kOpenersBytes);
  close(buffer.shared);
}

// The buffer keeps its address: the file is mapped there.
cudaError_t DeviceState::Export(void* data, cudaIpcMemHandle_t* handle) {
  const auto found = buffers_.find(reinterpret_cast<uintptr_t>(data));
  if (found == buffers_.end() || found->second.place != Place::kDevice || found->second.imported)
    return Violate("a handle of what is no buffer of the device");
  Buffer& buffer = found->second;
  auto* const begin = static_cast<uint8_t*>(buffer.mapping);
  if (buffer.shared < 0) {
    const int file = memfd_create("coppice-fake-ipc", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(buffer.accessible + kOpenersBytes)) != 0)
      return cudaErrorMemoryAllocation;
    buffer.openers = MapOpeners(file, buffer.accessible);
    if (buffer.openers == nullptr) return cudaErrorMemoryAllocation;
    if (settings.protect) mprotect(begin, buffer.accessible, PROT_READ | PROT_WRITE);
    const std::vector<uint8_t> content(begin, begin + buffer.accessible);
    const int access = PROT_READ | PROT_WRITE;
    if (mmap(begin, buffer.accessible, access, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
      return cudaErrorMemoryAllocation;
    std::memcpy(begin, content.data(), content.size());
    if (settings.protect) mprotect(begin, buffer.accessible, PROT_NONE);
    buffer.shared = file;
  }
  const Exported exported = {getpid(), buffer.shared, buffer.accessible,
                             static_cast<uint64_t>(static_cast<uint8_t*>(data) - begin),
                             buffer.bytes};
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &exported, sizeof exported);
  return cudaSuccess;
}

cudaError_t DeviceState::Import(const cudaIpcMemHandle_t& handle, void** out) {
  *out = nullptr;
  Exported exported;
  std::memcpy(&exported, &handle, sizeof exported);
  const char* const refuses = std::getenv("DEV_FAIL_IPC");
  if (refuses != nullptr && std::atoi(refuses) == CurrentDevice())
    return cudaErrorPeerAccessUnsupported;
  // As the CUDA runtime returns.
  if (exported.process == getpid()) return cudaErrorDeviceUninitialized;
  const std::string path =
      "/proc/" + std::to_string(exported.process) + "/fd/" + std::to_string(exported.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return cudaErrorInvalidValue;
  Buffer buffer{Place::kDevice, exported.bytes};
  buffer.accessible = buffer.mapped = exported.accessible;
  buffer.imported = true;
  buffer.mapping =
      mmap(nullptr, buffer.mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, /*offset=*/0);
  buffer.openers = MapOpeners(file, buffer.accessible);
  close(file);
  if (buffer.mapping == MAP_FAILED || buffer.openers == nullptr) return cudaErrorMemoryAllocation;
  ReplaceOpener(buffer.openers, 0, getpid());
  *out = static_cast<uint8_t*>(buffer.mapping) + exported.offset;
  if (settings.protect) mprotect(buffer.mapping, buffer.accessible, PROT_NONE);
  buffers_[reinterpret_cast<uintptr_t>(*out)] = buffer;
  ++live.imports;
  return cudaSuccess;
}

cudaError_t DeviceState::CloseImport(void* data) {
  const auto found = buffers_.find(reinterpret_cast<uintptr_t>(data));
  if (found == buffers_.end() || !found->second.imported)
    return Violate("memory is closed that is not open");
  DrainDevice();
  munmap(found->second.mapping, found->second.mapped);
  ReplaceOpener(found->second.openers, getpid(), 0);
  munmap(found->second.openers, kOpenersBytes);
  buffers_.erase(found);
  --live.imports;
  return cudaSuccess;
}

}  // namespace coppice::kernels::cuda::fake

using coppice::kernels::cuda::fake::DeviceState;
using coppice::kernels::cuda::fake::UncapturedCall;

extern "C" {

cudaError_t CUDARTAPI cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* data) {
  return UncapturedCall("cudaIpcGetMemHandle",
                        [&](DeviceState& state) { return state.Export(data, handle); });
}

cudaError_t CUDARTAPI cudaIpcOpenMemHandle(void** data, cudaIpcMemHandle_t handle, unsigned int) {
  return UncapturedCall("cudaIpcOpenMemHandle",
                        [&](DeviceState& state) { return state.Import(handle, data); });
}

cudaError_t CUDARTAPI cudaIpcCloseMemHandle(void* data) {
  return UncapturedCall(
      "cudaIpcCloseMemHandle", [&](DeviceState& state) { return state.CloseImport(data); }, true);
}

}  // extern "C"
