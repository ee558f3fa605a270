// Memory that is read before a measurement, so that what is measured finds nothing of its own in
// the L2 cache, and nothing that must be written back while it runs, as after a fill. The read also
// keeps the device busy while the host enqueues, whose time then does not count. Thread-compatible.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/cuda/runtime/device_check.h"
#include "kernels/cuda/runtime/device_stream.h"

namespace coppice::kernels::cuda {

class CacheCover {
 public:
  // bytes: several times the L2 cache; rounded up to what ReadMemory takes. ResourceExhausted: no
  // memory for it.
  static absl::StatusOr<CacheCover> Allocate(size_t bytes, const DeviceFacts& device,
                                             absl::string_view what);
  // Enqueues the read of all of it.
  absl::Status Read(DeviceStream* stream, absl::string_view what);

 private:
  CacheCover(DeviceBuffer memory, DeviceBuffer sums, int blocks)
      : memory_(std::move(memory)), sums_(std::move(sums)), blocks_(blocks) {}

  DeviceBuffer memory_, sums_;
  int blocks_;
};

}  // namespace coppice::kernels::cuda
