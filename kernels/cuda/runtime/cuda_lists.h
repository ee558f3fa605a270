// Candidate lists of a step on the device: its tasks there, which StepUpload copies, and the
// results on the way to the host. The kernels are launched in between, by SelectOp (device_op.h):
// what differs between steps is in device memory by then. Owned by CudaStepRows. Thread-compatible.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/cuda/runtime/device_stream.h"
#include "kernels/cuda/runtime/list_plan.h"
#include "kernels/cuda/runtime/upload_block.h"

namespace coppice::kernels::cuda {

class CudaLists {
 public:
  // Makes room for the results. *plan must live until the lists are placed; the step before must
  // have run.
  absl::Status MakeRoom(const ListPlan* plan, const LogitRows& rows);
  // Places the tasks in a block, and says where they and the results are.
  DeviceLists Place(BlockLayout* layout) const;
  // What launches are given if the result of Place lies in device memory.
  ListsView View(const DeviceLists* placed) const;
  // Enqueues the copy of the results.
  absl::Status Download(DeviceStream* stream);

  // Valid once the copy has been made, until the next Download.
  const ChunkSums* sums() const { return reinterpret_cast<const ChunkSums*>(host_.data()); }
  const uint32_t* records() const;

 private:
  const ListPlan* plan_ = nullptr;
  DeviceBuffer scratch_;  // entries, then bad tokens
  DeviceBuffer results_;  // sums, then records
  PinnedBuffer host_;     // the same on the host
  size_t sum_bytes_ = 0, result_bytes_ = 0;
  int32_t list_room_ = 0, sum_room_ = 0;
};

}  // namespace coppice::kernels::cuda
