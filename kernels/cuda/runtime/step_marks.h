// How far the device has progressed in a step: marks between its parts, queried one after the
// other. Owned by CudaBackend. Thread-compatible.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/runtime/device_stream.h"

namespace coppice::kernels::cuda {

class StepMarks {
 public:
  static constexpr int kMost = 10;  // marks per step

  static absl::StatusOr<StepMarks> Create();

  // Forgets the marks of the step before.
  void Clear() { added_ = reached_ = 0; }
  // Marks the end of what is enqueued so far, at most kMost times. what: the part that ends here,
  // as errors name it; must live until Clear.
  absl::Status Add(const DeviceStream& stream, const char* what);
  int added() const { return added_; }
  // How many the device has reached. An error is one of the work before the next.
  absl::StatusOr<int> Reached();
  // Polls until all are reached, and lets other threads run once in between: sleeping costs a
  // wake-up, and on a busy machine each further turn of the others costs milliseconds. Calls
  // on_mark whenever more are reached, and go_on before each query: its error ends the wait.
  absl::Status Wait(absl::FunctionRef<void()> on_mark, absl::FunctionRef<absl::Status()> go_on);

 private:
  std::vector<DeviceEvent> events_;  // [kMost]
  std::vector<const char*> what_ = std::vector<const char*>(kMost);
  int added_ = 0, reached_ = 0;
};

}  // namespace coppice::kernels::cuda
