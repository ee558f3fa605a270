// The CUDA backend: binds kernels/backend.h to a device. Submit enqueues a whole step and returns;
// Wait polls the device until the step has run. Made by MakeBackend; thread-compatible.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace coppice::kernels::cuda {

// Uses a device that CUDA shows to this process: the first, or with several ranks the one with the
// rank's index on its host. Collective; when one rank fails, all return an error. InvalidArgument:
// threads or communicator are missing. FailedPrecondition names what this machine lacks: a driver,
// a device, one of compute capability 8.0, or NCCL if it was requested.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const BackendOptions& options);

}  // namespace coppice::kernels::cuda
