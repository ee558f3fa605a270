// The simulated NCCL in place of a library that is loaded.
#include "kernels/cuda/nccl_api.h"

namespace coppice::kernels::cuda {

absl::StatusOr<const NcclApi*> LoadNccl() {
  static const NcclApi api = {&ncclGetVersion,        &ncclGetUniqueId,  &ncclCommInitRankConfig,
                              &ncclCommGetAsyncError, &ncclCommFinalize, &ncclCommDestroy,
                              &ncclCommAbort,         &ncclAllReduce,    &ncclGetErrorString,
                              &ncclGetLastError};
  return &api;
}

}  // namespace coppice::kernels::cuda
