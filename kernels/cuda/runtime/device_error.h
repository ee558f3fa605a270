// Errors of the CUDA runtime and of cuBLASLt as statuses that name the call and what it was for.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace coppice::kernels::cuda {

// "what: call: cudaErrorName: its text". ResourceExhausted when memory ran out, else Internal.
// Clears cudaGetLastError.
absl::Status CudaStatus(cudaError_t error, absl::string_view call, absl::string_view what);
absl::Status CublasStatus(cublasStatus_t status, absl::string_view call, absl::string_view what);

// As CudaStatus, for a call that takes memory of the device; names the free memory when there was
// none.
absl::Status MemoryStatus(cudaError_t error, absl::string_view call, absl::string_view what);

// The same for a call that should allocate this many bytes; names them too.
absl::Status AllocationStatus(cudaError_t error, absl::string_view call, absl::string_view what,
                              size_t bytes);

}  // namespace coppice::kernels::cuda
