// Shortlists of a step on the device: its tasks there, the kernels, their results on the way to the
// host. Three parts, so that the kernels alone can be recorded: what differs between steps is in
// device memory by then. Owned by CudaStepRows. Thread-compatible.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/device_stream.h"
#include "kernels/cuda/list_plan.h"
#include "kernels/cuda/upload_block.h"

namespace coppice::kernels::cuda {

class CudaLists {
 public:
  // Makes room for the results. The step before must have run.
  absl::Status MakeRoom(const ListPlan& plan, const LogitRows& rows);
  // Places the tasks in a block, and says where they and the results are.
  DeviceLists Place(const ListPlan& plan, BlockLayout* layout) const;
  // Both, in a block of its own, and enqueues its copy.
  absl::Status Upload(const ListPlan& plan, const LogitRows& rows, DeviceStream* stream);
  // Enqueues the kernels.
  absl::Status Enqueue(const LogitRows& rows, DeviceStream* stream) const;
  // Enqueues the copy of the results.
  absl::Status Download(DeviceStream* stream);

  // Once the copy has been made, until the next Download.
  const ChunkSums* sums() const { return reinterpret_cast<const ChunkSums*>(host_.data()); }
  const uint32_t* records() const;

 private:
  UploadBlock block_;
  DeviceBuffer scratch_;  // entries, then bad tokens
  DeviceBuffer results_;  // sums, then records
  PinnedBuffer host_;     // the same
  size_t sum_bytes_ = 0, result_bytes_ = 0;
  ListsView view_;
};

}  // namespace coppice::kernels::cuda
