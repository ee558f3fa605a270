// Sums over the ranks through pinned memory of the host and the communicator of the replica: in
// rank order, on any machine, with ranks that share a device too. The host waits for each of them.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "comm/communicator.h"
#include "kernels/cuda/collectives/device_collectives.h"

namespace coppice::kernels::cuda {

// *communicator must outlive the result. reason: why NCCL cannot be used, for the description; may
// be empty.
absl::StatusOr<std::unique_ptr<DeviceCollectives>> MakeStagedCommunicator(
    comm::Communicator* communicator, const std::string& reason);

}  // namespace coppice::kernels::cuda
