// NCCL for tests without a GPU: link-time stand-ins (nccl.cc) behind the library's own header.
// Ranks are threads of this process or processes of this machine. What it is stricter about than
// NCCL may be:
//   - Communicators must not block. Each call that may say "in progress" does, and a collective
//     comes to its stream only once the caller has asked for the outcome. Errors of the ranks among
//     each other are told by ncclCommGetAsyncError alone.
//   - A collective runs when the host waits for its stream. It waits for all ranks; one whose rank
//     is gone waits until its communicator is aborted.
//   - Sums begin at a rank that depends on the place of the element, as in a ring.
//   - Ranks that do not call the same collective get an error; so do two ranks on one device.
//   - A sum is captured on all ranks or on none.
//   - While a graph holds a sum of it, a communicator does not part, and its abort does not return.
//   - A window is written to where the caller told once every rank has registered one of the same
//     size. It is deregistered before its communicator parts, and before its memory is freed, both
//     with no work queued on the device. Ranks sum at the same place of the same window, or none of
//     them in a window.
// For running programs, from the environment: DEV_FAIL_NCCL=call:rank:n fails the n-th such call of
// that rank. Live communicators are among the handles of CountLive. Thread-safe.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <map>
#include <string>

namespace coppice::kernels::cuda::fake {

struct NcclFailure {
  std::string call;  // "ncclAllReduce"
  int rank = 0;  // rank that calls; ncclGetVersion and ncclGetUniqueId: any; of memory: the device
  int64_t nth = 0;  // number of the call; 0 = the next one
  ncclResult_t result = ncclInternalError;
  bool later = false;  // the call stays in progress, and ncclCommGetAsyncError returns the failure
  bool wrong =
      false;  // ncclAllReduce: it succeeds instead, and the first value on this rank is wrong
  // ncclCommDestroy and ncclCommAbort: succeeds instead, so late, or when RecoverNccl is called.
  double late_s = 0;
};
// A future call returns this result and does nothing, unless it ends a communicator.
void FailNccl(const NcclFailure& failure);
bool NcclFailed();   // the failure has happened
void RecoverNccl();  // no failure will follow; forgets ids that were never used

// What the library can do, until RecoverNccl.
struct NcclAbilities {
  bool windows = true;    // false: a version without windows
  bool symmetric = true;  // false: a registration succeeds and gives no window
};
void SetNcclAbilities(const NcclAbilities& abilities);
NcclAbilities GetNcclAbilities();

// Calls by name that a rank has made since the last RecoverNccl.
std::map<std::string, int64_t> NcclCalls(int rank);

}  // namespace coppice::kernels::cuda::fake
