#include "kernels/cuda/work_upload.h"

#include <algorithm>

#include "base/status.h"

namespace coppice::kernels::cuda {
namespace {

constexpr char kWhat[] = "the work list of attention";
constexpr size_t kLeastPartials = size_t{1} << 20, kLeastCounters = size_t{64} << 10;  // bytes

// Twice what is asked for, so that it seldom grows.
absl::Status Grow(size_t bytes, size_t least, DeviceBuffer* buffer, bool* grown) {
  *grown = buffer->size() < bytes || buffer->size() == 0;
  if (!*grown) return absl::OkStatus();
  COPPICE_ASSIGN_OR_RETURN(*buffer, DeviceBuffer::Allocate(std::max(2 * bytes, least), kWhat));
  return absl::OkStatus();
}

}  // namespace

absl::Status WorkUpload::Upload(const StepPlan& plan, const WorkShape& shape,
                                DeviceStream* stream) {
  const WorkList list = MakeWorkList(plan, shape);
  bool grown = false;
  COPPICE_RETURN_IF_ERROR(
      Grow(list.partial_floats * sizeof(float), kLeastPartials, &partials_, &grown));
  COPPICE_RETURN_IF_ERROR(Grow(list.merges * sizeof(uint32_t), kLeastCounters, &counters_, &grown));
  // Zero before the first launch; launches leave them zero.
  if (grown) COPPICE_RETURN_IF_ERROR(stream->FillZero(counters_.data(), counters_.size(), kWhat));
  work_.partials = partials_.floats();
  work_.counters = static_cast<uint32_t*>(counters_.data());
  return block_.Upload(stream, kWhat, [&](BlockLayout* layout) {
    for (int c = 0; c < kTileClasses; ++c) {
      const WorkList::OfClass& of = list.classes[c];
      work_.classes[c].items = layout->Add(of.items);
      work_.classes[c].worker_begin = layout->Add(of.worker_begin);
      work_.classes[c].workers = static_cast<int32_t>(of.worker_begin.size()) - 1;
    }
    work_.chain = layout->Add(list.chain);
    work_.masks = layout->Add(list.masks);
  });
}

}  // namespace coppice::kernels::cuda
