// Runs the kernels on a given instruction set instead of the best one. Called before any kernel
// runs.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace coppice::answers {

// "best", "AVX-512", "AVX2" or "scalar". InvalidArgument: another name. Unimplemented: this machine
// or this build does not support it.
absl::Status ChooseKernels(const std::string& name);

}  // namespace coppice::answers
