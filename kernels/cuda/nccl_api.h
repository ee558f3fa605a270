// NCCL as this process finds it. A build knows the library's header; the library itself is loaded
// when ranks need it, so that a program runs without it too.
#pragma once

#include <nccl.h>

#include "absl/status/statusor.h"

namespace coppice::kernels::cuda {

struct NcclApi {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclCommFinalize) comm_finalize = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;
};

// Any thread. NotFound: the library, or a function of it, with what the loader says. The result
// lives as long as the process.
absl::StatusOr<const NcclApi*> LoadNccl();

}  // namespace coppice::kernels::cuda
