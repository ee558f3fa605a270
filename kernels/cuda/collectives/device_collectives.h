// Collectives of the ranks of a replica on their devices. Three ways: NCCL (nccl_communicator.h),
// kernels of our own for the ranks of one host (one_shot_communicator.h), both by size
// (sized_collectives.h), and through the host (staged_communicator.h), which works everywhere.
// Owned by CudaBackend. One thread of each rank enqueues, the same on every rank; Failure and Abort
// are for any thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/ops/launch.h"
#include "kernels/cuda/runtime/device_check.h"
#include "kernels/cuda/runtime/device_stream.h"

namespace coppice::kernels::cuda {

class DeviceCollectives {
 public:
  virtual ~DeviceCollectives() = default;
  virtual std::string description() const = 0;  // "NCCL 2.28.9"
  // Collective, before the first step: device memory for values that are summed, if this way of
  // summing wants its own memory; it lives as long as this object. nullptr on every rank: any
  // memory will do.
  virtual absl::StatusOr<float*> AllocateSummed(int64_t /*count*/) { return nullptr; }
  // values[i] = sum over the ranks, on every rank, after the work enqueued so far. values [count]
  // f32 in device memory. The same bits on every rank.
  virtual absl::Status AllReduceSum(float* values, int64_t count, DeviceStream* stream) = 0;
  // Whether AllReduceSumAndNorm takes this many rows.
  virtual bool CanNorm(int64_t /*rows*/, int64_t /*columns*/) const { return false; }
  // AddNorm (launch.h) with the sum over the ranks of norm.addend. The contents of norm.addend are
  // undefined afterwards. The bits are those of AllReduceSum of this object followed by AddNorm.
  virtual absl::Status AllReduceSumAndNorm(const AddNormArgs& /*norm*/, DeviceStream* /*stream*/) {
    return absl::UnimplementedError("a sum over the ranks with a norm");
  }
  // Whether AllReduceSum waits for nothing, so that a graph may hold what it enqueues.
  virtual bool only_enqueues() const = 0;
  // Whether sums pass through the communicator of the host, which counts their bytes.
  virtual bool through_host() const { return false; }
  // Not OK once a rank or the library has failed: results of the device since then are invalid.
  virtual absl::Status Failure() = 0;
  // Ends waits for other ranks, as far as possible. From now on Failure returns `reason`, unless
  // there was a failure before.
  virtual void Abort(const absl::Status& reason) = 0;
};

// What a rank reports before the ranks choose.
struct RankFacts {
  std::string asked;                    // --communicator: "auto", "nccl", "oneshot" or "host"
  int nccl = 0;                         // version, 22809 for 2.28.9; 0 = it has none
  std::array<uint8_t, 16> device = {};  // the device's own number, the same for all who use it
  std::array<uint8_t, 16> host = {};    // the same for all on one host, until it starts anew
  int process = 0;
  bool exact = false;  // --exact: sums must be in rank order
};
// With neither, sums go through the host.
struct CollectivesChoice {
  bool nccl = false, one_shot = false;
  std::string reason;           // why not NCCL, where it was not asked for
  std::string one_shot_reason;  // why not one-shot sums
};
// The same on every rank. InvalidArgument, FailedPrecondition: names the rank and what it lacks.
absl::StatusOr<CollectivesChoice> ChooseCollectives(absl::Span<const RankFacts> ranks);

// Collective; when one rank fails, all return an error. The communicator has more than one rank and
// outlives the result.
absl::StatusOr<std::unique_ptr<DeviceCollectives>> MakeDeviceCollectives(
    const BackendOptions& options, const DeviceFacts& device, DeviceStream* stream);

}  // namespace coppice::kernels::cuda
