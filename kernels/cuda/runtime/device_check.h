// Whether this machine has a device that the CUDA backend can use.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace coppice::kernels::cuda {

struct DeviceFacts {
  std::string description;  // "NVIDIA H100 80GB HBM3, 79 GiB, by MPS"
  std::string pci_bus_id;   // "0000:3b:00.0": which of the host's devices it is
  int multiprocessors = 0;
  int64_t shared_bytes = 0;        // bytes of shared memory per multiprocessor
  int64_t block_shared_bytes = 0;  // bytes of shared memory per block, at most
  bool overlaps_launches = false;  // OverlapScope has an effect
  bool has_clusters = false;       // of blocks
  bool has_wgmma = false;          // it runs what is compiled for sm_90a
  std::array<uint8_t, 16> uuid = {};
  std::string name;  // "NVIDIA H100 80GB HBM3"
  size_t l2_bytes = 0;
};
// Makes the device number `place` the current one of this thread, modulo the number of devices.
// FailedPrecondition says in one sentence what is missing.
absl::StatusOr<DeviceFacts> UseDevice(int place = 0);
// The memory of the current device, now.
absl::StatusOr<MemoryFacts> DeviceMemory();

}  // namespace coppice::kernels::cuda
