// The simulated NCCL in place of a library that is loaded.
#include "kernels/cuda/collectives/nccl_api.h"

#include "kernels/cuda/simulator/fake/fake_nccl.h"

namespace coppice::kernels::cuda {

absl::StatusOr<const NcclApi*> LoadNccl() {
  static const NcclApi api = {&ncclGetVersion,         &ncclGetUniqueId,
                              &ncclCommInitRankConfig, &ncclCommGetAsyncError,
                              &ncclCommFinalize,       &ncclCommDestroy,
                              &ncclCommAbort,          &ncclAllReduce,
                              &ncclGetErrorString,     &ncclGetLastError,
                              &ncclMemAlloc,           &ncclMemFree,
                              &ncclCommWindowRegister, &ncclCommWindowDeregister};
  static const NcclApi old = [] {
    NcclApi old = api;
    old.mem_alloc = nullptr;
    old.mem_free = nullptr;
    old.comm_window_register = nullptr;
    old.comm_window_deregister = nullptr;
    return old;
  }();
  return fake::GetNcclAbilities().windows ? &api : &old;
}

}  // namespace coppice::kernels::cuda
