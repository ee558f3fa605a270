#include "kernels/cuda/runtime/device_error.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace coppice::kernels::cuda {
namespace {

std::string Megabytes(size_t bytes) { return absl::StrCat(bytes >> 20, " MiB"); }

}  // namespace

absl::Status CudaStatus(cudaError_t error, absl::string_view call, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  const std::string message = absl::StrCat(what, ": ", call, ": ", cudaGetErrorName(error), ": ",
                                           cudaGetErrorString(error));
  return error == cudaErrorMemoryAllocation ? absl::ResourceExhaustedError(message)
                                            : absl::InternalError(message);
}

absl::Status CublasStatus(cublasStatus_t status, absl::string_view call, absl::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  cudaGetLastError();
  const std::string message = absl::StrCat(what, ": ", call, ": ", cublasLtGetStatusName(status),
                                           ": ", cublasLtGetStatusString(status));
  if (status == CUBLAS_STATUS_ALLOC_FAILED) return absl::ResourceExhaustedError(message);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return absl::UnimplementedError(message);
  return absl::InternalError(message);
}

absl::Status MemoryStatus(cudaError_t error, absl::string_view call, absl::string_view what) {
  const absl::Status status = CudaStatus(error, call, what);
  size_t free = 0, total = 0;
  if (error != cudaErrorMemoryAllocation || cudaMemGetInfo(&free, &total) != cudaSuccess) {
    return status;
  }
  return absl::Status(status.code(), absl::StrCat(status.message(), "; the device has ",
                                                  Megabytes(free), " free of ", Megabytes(total)));
}

absl::Status AllocationStatus(cudaError_t error, absl::string_view call, absl::string_view what,
                              size_t bytes) {
  if (error == cudaSuccess) return absl::OkStatus();
  return MemoryStatus(error, absl::StrCat(call, " of ", bytes, " bytes (", Megabytes(bytes), ")"),
                      what);
}

}  // namespace coppice::kernels::cuda
