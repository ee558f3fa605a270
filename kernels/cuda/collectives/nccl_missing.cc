// What a build without nccl.h says.
#include "kernels/cuda/collectives/nccl_communicator.h"

namespace coppice::kernels::cuda {
namespace {

absl::Status Missing() {
  return absl::UnimplementedError(
      "this build has no NCCL: nccl.h was not found when it was configured");
}

}  // namespace

absl::StatusOr<int> NcclVersion() { return Missing(); }

absl::StatusOr<std::unique_ptr<DeviceCollectives>> JoinNccl(comm::Communicator*, DeviceStream*,
                                                            double) {
  return Missing();
}

}  // namespace coppice::kernels::cuda
