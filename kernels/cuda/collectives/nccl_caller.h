// One communicator of NCCL and the only way to call it. A call in progress is polled until it ends.
// The first failure stays the failure of the communicator. Owned by NcclCommunicator. Failure and
// Abort are for any thread, the rest is for the thread of the steps.
#pragma once

#include <future>
#include <limits>
#include <mutex>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "kernels/cuda/collectives/nccl_api.h"

namespace coppice::kernels::cuda {

inline constexpr double kNoDeadline = std::numeric_limits<double>::infinity();

// "ncclSystemError: unhandled system error"
std::string DescribeResult(const NcclApi& api, ncclResult_t result);

class NcclCaller {
 public:
  // `api` must outlive the process. The device is the current one of this thread.
  NcclCaller(const NcclApi& api, int rank, int ranks);
  // The communicator has parted or was aborted.
  ~NcclCaller() = default;

  // Makes the communicator. `what` is its purpose, in messages: "the ranks of a replica join".
  absl::Status Join(const ncclUniqueId& id, const char* what, double end_s);
  // Makes one call for the communicator and polls it while it is in progress. What body writes to
  // must live until the communicator has ended. DeadlineExceeded names the awaited ranks.
  absl::Status Call(const char* call, const char* what, double end_s,
                    absl::FunctionRef<ncclResult_t(ncclComm_t)> body);
  // The failure so far, or one in the background that NCCL reports.
  absl::Status Failure(const char* what);
  absl::Status Late(const char* call, const char* what) const;
  // Ends kernels that wait for other ranks, as far as possible. The failure is `reason`, unless
  // there is one. Returns at once: NCCL ends an aborted communicator only when no graph holds a sum
  // of it any longer, and the caller may be the owner of the graphs.
  void Abort(const absl::Status& reason);
  // Waits, at most this long, until what was aborted or has parted has ended. False: it is still
  // running, and memory that NCCL knows must stay.
  bool Ended(double within_s);
  // All ranks leave, in order; aborts if that fails. The rest of the communicator ends in another
  // thread, as after Abort: NCCL waits there until the other ranks of the host have closed what
  // they have opened here.
  void Part(const char* what, double end_s);
  // After Abort: Join may make another communicator. Not OK if the old one has not ended within
  // that time.
  absl::Status BeginAnew(double within_s);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  double NowSeconds() const { return clock_.NowSeconds(); }

 private:
  absl::StatusOr<bool> Done(const char* call, const char* what, ncclResult_t result, double end_s);
  absl::Status Error(ncclResult_t result, const char* call, const char* what) const;
  // Ends comm_ in a thread that is not awaited. mutex_ is held.
  void EndApart(ncclResult_t (*end)(ncclComm_t));
  absl::Status Known();                           // the failure so far
  absl::Status Fail(const absl::Status& status);  // the first failure: this one or an earlier one

  const NcclApi& api_;
  const int rank_, ranks_;
  int device_ = 0;
  const SteadyClock clock_;
  std::mutex mutex_;           // guards calls for comm_, and ended_
  ncclComm_t comm_ = nullptr;  // null once it has parted or is aborted
  std::future<void> ended_;    // result of the last communicator that was aborted or has parted
  std::mutex failure_mutex_;
  absl::Status failure_;  // the first failure
};

}  // namespace coppice::kernels::cuda
