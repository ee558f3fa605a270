// The CPU backend: binds the operations of kernels/backend.h to the kernels of this folder and to
// one team of threads. Made by MakeBackend; thread-compatible.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace coppice::cpu {

// threads 0 = all cores this process may use.
std::unique_ptr<Backend> MakeCpuBackend(int threads);

}  // namespace coppice::cpu
