#include "kernels/cuda/runtime/cuda_lists.h"

#include <algorithm>
#include <bit>

#include "base/status.h"

namespace coppice::kernels::cuda {
namespace {

constexpr char kWhat[] = "the candidate lists of a step";
constexpr size_t kLeastBytes = size_t{64} << 10;
constexpr size_t kLeastRoom = 8;  // lists, or sums

// Twice what is asked for, so that it seldom grows.
template <class Buffer>
absl::Status Grow(size_t bytes, Buffer* buffer) {
  if (buffer->size() >= bytes && buffer->size() > 0) return absl::OkStatus();
  COPPICE_ASSIGN_OR_RETURN(*buffer, Buffer::Allocate(std::max(2 * bytes, kLeastBytes), kWhat));
  return absl::OkStatus();
}

// Sizes of grids: few, so that the graph of one step serves others.
int32_t RoomFor(size_t count) {
  return count == 0 ? 0 : static_cast<int32_t>(std::bit_ceil(std::max(count, kLeastRoom)));
}

}  // namespace

const uint32_t* CudaLists::records() const {
  return reinterpret_cast<const uint32_t*>(host_.data() + sum_bytes_);
}

absl::Status CudaLists::MakeRoom(const ListPlan* of, const LogitRows& rows) {
  const ListPlan& plan = *of;
  plan_ = of;
  const size_t entry_bytes = plan.entries * sizeof(ListEntry);
  const size_t bad_bytes = plan.lists.size() * PiecesOf(rows) * sizeof(int32_t);
  sum_bytes_ = plan.sums.size() * sizeof(ChunkSums);
  result_bytes_ = sum_bytes_ + plan.record_words * sizeof(uint32_t);
  list_room_ = RoomFor(plan.lists.size());
  sum_room_ = RoomFor(plan.sums.size());
  COPPICE_RETURN_IF_ERROR(Grow(entry_bytes + bad_bytes, &scratch_));
  COPPICE_RETURN_IF_ERROR(Grow(result_bytes_, &results_));
  return Grow(result_bytes_, &host_);
}

DeviceLists CudaLists::Place(BlockLayout* layout) const {
  const ListPlan& plan = *plan_;
  DeviceLists lists;
  lists.lists = layout->Add(plan.lists);
  lists.sums = layout->Add(plan.sums);
  lists.bias = layout->Add(plan.bias);
  lists.entries = static_cast<ListEntry*>(scratch_.data());
  lists.bad_tokens = reinterpret_cast<int32_t*>(lists.entries + plan.entries);
  lists.chunk_sums = static_cast<ChunkSums*>(results_.data());
  lists.records = reinterpret_cast<uint32_t*>(lists.chunk_sums + plan.sums.size());
  lists.list_count = static_cast<int32_t>(plan.lists.size());
  lists.sum_count = static_cast<int32_t>(plan.sums.size());
  return lists;
}

ListsView CudaLists::View(const DeviceLists* placed) const {
  return {placed, list_room_, sum_room_};
}

absl::Status CudaLists::Download(DeviceStream* stream) {
  return stream->CopyToHost(host_.data(), results_.data(), result_bytes_, kWhat);
}

}  // namespace coppice::kernels::cuda
