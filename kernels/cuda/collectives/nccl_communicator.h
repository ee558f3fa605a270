// Sums over the ranks by NCCL, each rank on its own device. NCCL decides in which order a sum is
// formed: it depends on the place of an element and on the number of ranks, so the same step gives
// the same bits, but another layout of rows may give others. AllocateSummed gives a symmetric
// window, known to all ranks, if NCCL and the devices support it. A build without the library's
// header has nccl_missing.cc instead.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "comm/communicator.h"
#include "kernels/cuda/collectives/device_collectives.h"
#include "kernels/cuda/runtime/device_stream.h"

namespace coppice::kernels::cuda {

// The version of the loaded library, 22809 for 2.28.9. Unimplemented: this build cannot use one.
// NotFound names what is missing.
absl::StatusOr<int> NcclVersion();

// Collective, and all ranks must have NCCL: rank 0 makes an id, sends it by *communicator, the
// ranks join, and one sum is formed and checked. DeadlineExceeded names the awaited ranks. When one
// rank fails, all return an error. *communicator and *stream must outlive the result.
absl::StatusOr<std::unique_ptr<DeviceCollectives>> JoinNccl(comm::Communicator* communicator,
                                                            DeviceStream* stream,
                                                            double deadline_s);

}  // namespace coppice::kernels::cuda
