#include "kernels/cuda/cuda_lists.h"

#include <algorithm>
#include <vector>

#include "base/status.h"
#include "kernels/cuda/device_error.h"

namespace coppice::kernels::cuda {
namespace {

constexpr char kWhat[] = "the shortlists of a step";
constexpr size_t kLeastBytes = size_t{64} << 10;

// Twice what is asked for, so that it seldom grows.
template <class Buffer>
absl::Status Grow(size_t bytes, Buffer* buffer) {
  if (buffer->size() >= bytes && buffer->size() > 0) return absl::OkStatus();
  COPPICE_ASSIGN_OR_RETURN(*buffer, Buffer::Allocate(std::max(2 * bytes, kLeastBytes), kWhat));
  return absl::OkStatus();
}

}  // namespace

const uint32_t* CudaLists::records() const {
  return reinterpret_cast<const uint32_t*>(host_.data() + sum_bytes_);
}

absl::Status CudaLists::MakeRoom(const ListPlan& plan, const LogitRows& rows) {
  const size_t entry_bytes = plan.entries * sizeof(ListEntry);
  const size_t bad_bytes = plan.lists.size() * PiecesOf(rows) * sizeof(int32_t);
  sum_bytes_ = plan.sums.size() * sizeof(ChunkSums);
  result_bytes_ = sum_bytes_ + plan.record_words * sizeof(uint32_t);
  view_.list_room = static_cast<int32_t>(plan.lists.size());
  view_.sum_room = static_cast<int32_t>(plan.sums.size());
  COPPICE_RETURN_IF_ERROR(Grow(entry_bytes + bad_bytes, &scratch_));
  COPPICE_RETURN_IF_ERROR(Grow(result_bytes_, &results_));
  return Grow(result_bytes_, &host_);
}

DeviceLists CudaLists::Place(const ListPlan& plan, BlockLayout* layout) const {
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

absl::Status CudaLists::Upload(const ListPlan& plan, const LogitRows& rows, DeviceStream* stream) {
  COPPICE_RETURN_IF_ERROR(MakeRoom(plan, rows));
  return block_.Upload(stream, kWhat, [&](BlockLayout* layout) {
    const std::vector<DeviceLists> lists = {Place(plan, layout)};
    view_.lists = layout->Add(lists);
  });
}

absl::Status CudaLists::Enqueue(const LogitRows& rows, DeviceStream* stream) const {
  SumRows(view_, rows, stream->get());
  COPPICE_RETURN_IF_ERROR(CudaStatus(cudaGetLastError(), "kernel launch", "sums of logits"));
  ListPieces(view_, rows, stream->get());
  COPPICE_RETURN_IF_ERROR(CudaStatus(cudaGetLastError(), "kernel launch", "shortlists of pieces"));
  MergePieces(view_, rows, stream->get());
  return CudaStatus(cudaGetLastError(), "kernel launch", "merge of shortlists");
}

absl::Status CudaLists::Download(DeviceStream* stream) {
  return stream->CopyToHost(host_.data(), results_.data(), result_bytes_, kWhat);
}

}  // namespace coppice::kernels::cuda
