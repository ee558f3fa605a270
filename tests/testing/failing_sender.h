// For tests: a forward pass of a runner that fails.
#pragma once

#include <atomic>

#include "absl/status/status.h"
#include "model/model_runner.h"

namespace coppice::test {

// Lets so many plans pass; then every pass fails. failed() may be called from any thread.
class FailingSender : public model::PlanSender {
 public:
  explicit FailingSender(int passes) : passes_(passes) {}
  absl::Status Send(const StepPlan&) override {
    return passes_-- > 0 ? absl::OkStatus() : absl::InternalError("the device is lost");
  }
  bool failed() const { return passes_ < 0; }

 private:
  std::atomic<int> passes_;
};

}  // namespace coppice::test
