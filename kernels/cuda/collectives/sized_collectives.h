// Sums over the ranks by NCCL or by one-shot kernels, whichever was measured to be faster for the
// size. The measurement runs while the ranks start, over all of them, so that all choose the same.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/communicator.h"
#include "kernels/cuda/collectives/device_collectives.h"
#include "kernels/cuda/runtime/device_stream.h"

namespace coppice::kernels::cuda {

// Measured time of a sum of this many floats, the mean over the ranks.
struct SumCost {
  int64_t floats = 0;
  double nccl_s = 0, one_shot_s = 0;
};

// By size, ascending. A sum uses the entry of the next larger size; sums larger than all entries
// use NCCL.
class SumChoice {
 public:
  explicit SumChoice(std::vector<SumCost> costs) : costs_(std::move(costs)) {}
  bool OneShot(int64_t floats) const;
  std::string description() const;  // "one-shot sums of 8, 16, 64 KiB"

 private:
  const std::vector<SumCost> costs_;
};

// Collective; when one rank fails, all return an error. *communicator is not used later.
absl::StatusOr<std::unique_ptr<DeviceCollectives>> ChooseBySize(
    std::unique_ptr<DeviceCollectives> nccl, std::unique_ptr<DeviceCollectives> one_shot,
    comm::Communicator* communicator, DeviceStream* stream, double deadline_s);

}  // namespace coppice::kernels::cuda
