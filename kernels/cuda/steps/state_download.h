// Hidden states of slots on their way to the host: gathered side by side on the device, then copied
// at once. Owned by CudaBackend. Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/cuda/ops/launch.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/cuda/runtime/device_stream.h"

namespace coppice::kernels::cuda {

class StateDownload {
 public:
  // As Backend::ReadStates. Waits until the states are there: a copy up and, for each kMostBytes of
  // states, a launch and a copy down.
  static constexpr size_t kMostBytes = size_t{4} << 20;
  absl::Status Read(const DeviceStates& states, absl::Span<const int32_t> slots, uint16_t* out,
                    DeviceStream* stream);

 private:
  PinnedBuffer host_slots_, host_;
  DeviceBuffer slots_, gathered_;
  std::optional<DeviceEvent> copied_;
};

}  // namespace coppice::kernels::cuda
