// The CPU backend: implements kernels/backend.h with the kernels of this folder. It has no queue:
// Submit computes the body of the pass, Wait its head. Made by MakeBackend. Thread-compatible.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace coppice::kernels::cpu {

// InvalidArgument when threads or communicator is null.
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const BackendOptions& options);

}  // namespace coppice::kernels::cpu
