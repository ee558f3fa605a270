// Sums over the ranks by NCCL, each rank on a device of its own. In which order a sum is formed is
// NCCL's: it depends on the place of an element and on the number of ranks, so the same step gives
// the same bits, and another layout of rows need not. What AllocateSummed gives is a symmetric
// window, known to all ranks, where NCCL and the devices have such. A build without the library's
// header has nccl_missing.cc instead.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "comm/communicator.h"
#include "kernels/cuda/collectives/device_collectives.h"
#include "kernels/cuda/runtime/device_stream.h"

namespace coppice::kernels::cuda {

// The version of the loaded library, 22809 for 2.28.9. Unimplemented: this build cannot
// use one. NotFound says what is not there.
absl::StatusOr<int> NcclVersion();

// Collective, and all ranks must have NCCL: rank 0 makes an id, sends it by *communicator, the
// ranks join, and one sum is formed and checked. DeadlineExceeded names the ranks that are waited
// for. When one rank fails, all return an error. *communicator and *stream must outlive the result.
absl::StatusOr<std::unique_ptr<DeviceCollectives>> JoinNccl(comm::Communicator* communicator,
                                                            DeviceStream* stream,
                                                            double deadline_s);

}  // namespace coppice::kernels::cuda
