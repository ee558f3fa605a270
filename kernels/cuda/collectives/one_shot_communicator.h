// Sums over the ranks of one host by kernels of our own (one_shot.h), in rank order. Each rank
// opens the memory of the others by CUDA IPC, so every rank is a process of its own.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "comm/communicator.h"
#include "kernels/cuda/collectives/device_collectives.h"
#include "kernels/cuda/runtime/device_stream.h"

namespace coppice::kernels::cuda {

struct OneShotOptions {
  double start_deadline_s = 60;  // deadline of the first sum
  double limit_s = 60;           // time for which a kernel of a step waits for a rank
};

// Collective: the ranks open each other's memory, and one sum is formed and checked. When one rank
// fails, all return an error, and it is closed again. *communicator is not used later.
absl::StatusOr<std::unique_ptr<DeviceCollectives>> JoinOneShot(comm::Communicator* communicator,
                                                               DeviceStream* stream,
                                                               const OneShotOptions& options);

}  // namespace coppice::kernels::cuda
