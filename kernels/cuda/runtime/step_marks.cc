#include "kernels/cuda/runtime/step_marks.h"

#include <sched.h>

#include "base/check.h"
#include "base/status.h"

namespace coppice::kernels::cuda {

absl::StatusOr<StepMarks> StepMarks::Create() {
  StepMarks marks;
  for (int i = 0; i < kMost; ++i) {
    COPPICE_ASSIGN_OR_RETURN(DeviceEvent event, DeviceEvent::Create("a mark in a step"));
    marks.events_.push_back(std::move(event));
  }
  return marks;
}

absl::Status StepMarks::Add(const DeviceStream& stream, const char* what) {
  COPPICE_CHECK(added_ < kMost);
  COPPICE_RETURN_IF_ERROR(events_[added_].Record(stream, what));
  what_[added_++] = what;
  return absl::OkStatus();
}

absl::StatusOr<int> StepMarks::Reached() {
  while (reached_ < added_) {
    COPPICE_ASSIGN_OR_RETURN(const bool reached, events_[reached_].Reached(what_[reached_]));
    if (!reached) break;
    ++reached_;
  }
  return reached_;
}

absl::Status StepMarks::Wait(absl::FunctionRef<void()> on_mark,
                             absl::FunctionRef<absl::Status()> go_on) {
  while (reached_ < added_) {
    COPPICE_RETURN_IF_ERROR(go_on());
    const int before = reached_;
    COPPICE_ASSIGN_OR_RETURN(const int reached, Reached());
    if (reached > before) {
      on_mark();
    } else {
      sched_yield();
    }
  }
  return absl::OkStatus();
}

}  // namespace coppice::kernels::cuda
