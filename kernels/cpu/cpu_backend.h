// The CPU backend: binds kernels/backend.h to the kernels of this folder. It has no queue: Submit
// computes the body of the pass before it returns, Wait its head. Made by MakeBackend;
// thread-compatible.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace coppice::kernels::cpu {

// InvalidArgument when threads or communicator lack.
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const BackendOptions& options);

}  // namespace coppice::kernels::cpu
