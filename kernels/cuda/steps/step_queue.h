// The lists of ops of a step on their way to the device, with marks between the parts: repeated
// lists by their graphs, others op by op. Owned by CudaBackend. Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "comm/communicator.h"
#include "kernels/cuda/products/matrix_products.h"
#include "kernels/cuda/runtime/device_stream.h"
#include "kernels/cuda/runtime/step_marks.h"
#include "kernels/cuda/steps/device_op.h"
#include "kernels/cuda/steps/graph_cache.h"

namespace coppice::kernels::cuda {

class StepQueue {
 public:
  // *stream, *marks, *products and *communicator must outlive the queue. on_part: called whenever
  // the host sees that another part has ended; may be empty. graphs, warn: BackendOptions.
  StepQueue(DeviceStream* stream, StepMarks* marks, MatrixProducts* products,
            comm::Communicator* communicator, bool graphs,
            std::function<void(const std::string&)> warn, std::function<void()> on_part)
      : stream_(stream),
        marks_(marks),
        products_(products),
        on_part_(std::move(on_part)),
        graphs_(products, stream, communicator, graphs, std::move(warn)) {}

  // Forgets the step before.
  void Begin();
  // The body of a step, with marks after it, or after each of its parts if it has no graph.
  absl::Status AddBody(const OpList& body);
  // Adds ops for this many rows. what: the name in errors.
  absl::Status AddOps(const OpList& ops, int64_t rows, absl::string_view what);
  // The lists one after the other, by one graph or each for itself, with a mark after the last, or
  // after each body. what: the name in errors; it must live until Begin.
  absl::Status AddLists(absl::Span<const OpList> lists, const char* what);
  // Marks the end of what was added so far; `what` must live until Begin.
  absl::Status Mark(const char* what) { return marks_->Add(*stream_, what); }
  // Ops added from here on are the head, which HeadReached asks for.
  void BeginHead() { body_mark_ = marks_->added(); }

  // Whether only the head is left. An error is one of the device.
  absl::StatusOr<bool> HeadReached();
  // Until all marks are reached. go_on: StepMarks::Wait.
  absl::Status Wait(absl::FunctionRef<absl::Status()> go_on);

 private:
  void PartDone() const {
    if (on_part_) on_part_();
  }

  DeviceStream* const stream_;
  StepMarks* const marks_;
  MatrixProducts* const products_;
  const std::function<void()> on_part_;
  GraphCache graphs_;
  int body_mark_ = 0;  // reached when only the head is left
  int seen_ = 0;       // marks that were reported to on_part
};

}  // namespace coppice::kernels::cuda
