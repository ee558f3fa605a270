// Whether this machine has a device that the CUDA backend can use.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace coppice::kernels::cuda {

// Makes the first device the current one and describes it: "NVIDIA H100 80GB HBM3, 80 GiB".
// FailedPrecondition says in one sentence what is missing.
absl::StatusOr<std::string> UseDevice();

}  // namespace coppice::kernels::cuda
