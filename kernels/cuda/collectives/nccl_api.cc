#include "kernels/cuda/collectives/nccl_api.h"

#include <dlfcn.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#ifndef COPPICE_NCCL_LIBRARY
#define COPPICE_NCCL_LIBRARY ""
#endif

namespace coppice::kernels::cuda {
namespace {

constexpr char kName[] = "libnccl.so.2";

// Where the loader looks, then where this build found it.
absl::StatusOr<void*> Open() {
  std::vector<std::string> reasons;
  for (const std::string& path : {std::string(kName), std::string(COPPICE_NCCL_LIBRARY)}) {
    if (path.empty()) continue;
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    reasons.emplace_back(dlerror());
  }
  return absl::NotFoundError(
      absl::StrCat("NCCL is not installed here: ", absl::StrJoin(reasons, "; ")));
}

template <class Function>
void Find(void* library, const char* name, Function* function, std::string* missing) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr) absl::StrAppend(missing, missing->empty() ? "" : ", ", name);
}

absl::StatusOr<NcclApi> Load() {
  auto library = Open();
  if (!library.ok()) return library.status();
  NcclApi api;
  std::string missing;
  Find(*library, "ncclGetVersion", &api.get_version, &missing);
  Find(*library, "ncclGetUniqueId", &api.get_unique_id, &missing);
  Find(*library, "ncclCommInitRankConfig", &api.comm_init_rank_config, &missing);
  Find(*library, "ncclCommGetAsyncError", &api.comm_get_async_error, &missing);
  Find(*library, "ncclCommFinalize", &api.comm_finalize, &missing);
  Find(*library, "ncclCommDestroy", &api.comm_destroy, &missing);
  Find(*library, "ncclCommAbort", &api.comm_abort, &missing);
  Find(*library, "ncclAllReduce", &api.all_reduce, &missing);
  Find(*library, "ncclGetErrorString", &api.get_error_string, &missing);
  Find(*library, "ncclGetLastError", &api.get_last_error, &missing);
  if (!missing.empty()) {
    return absl::NotFoundError(
        absl::StrCat(kName, " of this machine is too old: it lacks ", missing));
  }
  NcclApi with_windows = api;
  Find(*library, "ncclMemAlloc", &with_windows.mem_alloc, &missing);
  Find(*library, "ncclMemFree", &with_windows.mem_free, &missing);
  Find(*library, "ncclCommWindowRegister", &with_windows.comm_window_register, &missing);
  Find(*library, "ncclCommWindowDeregister", &with_windows.comm_window_deregister, &missing);
  return missing.empty() ? with_windows : api;
}

}  // namespace

absl::StatusOr<const NcclApi*> LoadNccl() {
  static const absl::StatusOr<NcclApi>* const loaded = new absl::StatusOr<NcclApi>(Load());
  if (!loaded->ok()) return loaded->status();
  return &**loaded;
}

}  // namespace coppice::kernels::cuda
