// NCCL as this process finds it. A build knows the library's header; the library itself is loaded
// when ranks need it, so that a program runs without it too.
#pragma once

#include <nccl.h>

#include "absl/status/statusor.h"

// Windows came with 2.27. The library may be newer than the header.
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 27, 0)
using ncclWindow_t = void*;
#define NCCL_WIN_COLL_SYMMETRIC 0x01
#endif

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
  // Memory and windows of it, all of them or none: an older library has none.
  ncclResult_t (*mem_alloc)(void** data, size_t bytes) = nullptr;
  ncclResult_t (*mem_free)(void* data) = nullptr;
  ncclResult_t (*comm_window_register)(ncclComm_t comm, void* data, size_t bytes,
                                       ncclWindow_t* window, int flags) = nullptr;
  ncclResult_t (*comm_window_deregister)(ncclComm_t comm, ncclWindow_t window) = nullptr;
  bool has_windows() const { return mem_alloc != nullptr; }
};

// Any thread. NotFound: the library, or a function of it, with what the loader says. The result
// lives as long as the process.
absl::StatusOr<const NcclApi*> LoadNccl();

}  // namespace coppice::kernels::cuda
