#include "kernels/cuda/steps/state_download.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status.h"
#include "kernels/cuda/runtime/device_error.h"

namespace coppice::kernels::cuda {
namespace {

constexpr char kWhat[] = "hidden states";

}  // namespace

absl::Status StateDownload::Read(const DeviceStates& states, absl::Span<const int32_t> slots,
                                 uint16_t* out, DeviceStream* stream) {
  if (slots.empty()) return absl::OkStatus();
  if (!copied_) {
    COPPICE_ASSIGN_OR_RETURN(DeviceEvent event, DeviceEvent::Create(kWhat));
    copied_.emplace(std::move(event));
  }
  const size_t row_bytes = states.columns * sizeof(uint16_t);
  const size_t most = std::max<size_t>(1, kMostBytes / row_bytes);
  const size_t slot_bytes = slots.size() * sizeof(int32_t);
  COPPICE_RETURN_IF_ERROR(GrowBuffer(slot_bytes, kWhat, &host_slots_));
  COPPICE_RETURN_IF_ERROR(GrowBuffer(slot_bytes, kWhat, &slots_));
  const size_t piece_bytes = std::min(slots.size(), most) * row_bytes;
  COPPICE_RETURN_IF_ERROR(GrowBuffer(piece_bytes, kWhat, &host_));
  COPPICE_RETURN_IF_ERROR(GrowBuffer(piece_bytes, kWhat, &gathered_));
  std::memcpy(host_slots_.data(), slots.data(), slot_bytes);
  COPPICE_RETURN_IF_ERROR(
      stream->CopyToDevice(slots_.data(), host_slots_.data(), slot_bytes, kWhat));
  for (size_t begin = 0; begin < slots.size(); begin += most) {
    const size_t count = std::min(most, slots.size() - begin);
    GatherStates(states, static_cast<const int32_t*>(slots_.data()) + begin,
                 static_cast<int64_t>(count), gathered_.data(), stream->get());
    COPPICE_RETURN_IF_ERROR(CudaStatus(cudaGetLastError(), "kernel launch", "gather of states"));
    COPPICE_RETURN_IF_ERROR(
        stream->CopyToHost(host_.data(), gathered_.data(), count * row_bytes, kWhat));
    COPPICE_RETURN_IF_ERROR(copied_->Record(*stream, kWhat));
    COPPICE_RETURN_IF_ERROR(copied_->Wait(kWhat));
    std::memcpy(out + begin * states.columns, host_.data(), count * row_bytes);
  }
  return absl::OkStatus();
}

}  // namespace coppice::kernels::cuda
