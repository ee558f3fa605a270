#include "lab/bench/cuda/host_timer.h"

#include <chrono>
#include <utility>
#include <vector>

#include "base/status.h"
#include "lab/bench/cuda/device_timer.h"
#include "lab/bench/cuda/llama_shape.h"

namespace coppice::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUps = 3;  // the second captures the graphs

double UsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

absl::Status RunStep(const StepPlan& plan, LlamaModel* llama) {
  COPPICE_RETURN_IF_ERROR(llama->backend()->Submit(plan, llama->decoder()));
  return llama->backend()->Wait().status();
}

absl::Status RunForests(const coppice::ForestPlan& plan, LlamaModel* draft) {
  COPPICE_RETURN_IF_ERROR(draft->backend()->SubmitForests(plan, draft->decoder()));
  return draft->backend()->WaitForests().status();
}

}  // namespace

absl::StatusOr<Timing> TimeOnHost(absl::FunctionRef<absl::Status()> run) {
  std::vector<double> us;
  for (int i = -kWarmUps; i < kRuns; ++i) {
    const Clock::time_point begin = Clock::now();
    COPPICE_RETURN_IF_ERROR(run());
    if (i >= 0) us.push_back(UsSince(begin));
  }
  return Summarize(std::move(us));
}

absl::StatusOr<StepTiming> TimeSteps(const StepPlan& plan, bool graphs, LlamaModel* llama) {
  kernels::Backend* const backend = graphs ? llama->backend() : llama->op_by_op();
  std::vector<double> submit_us;
  StepTiming timing;
  COPPICE_ASSIGN_OR_RETURN(timing.step, TimeOnHost([&]() -> absl::Status {
                             const Clock::time_point begin = Clock::now();
                             COPPICE_RETURN_IF_ERROR(backend->Submit(plan, llama->decoder()));
                             submit_us.push_back(UsSince(begin));
                             return backend->Wait().status();
                           }));
  submit_us.erase(submit_us.begin(), submit_us.begin() + kWarmUps);
  timing.submit = Summarize(std::move(submit_us));
  return timing;
}

absl::StatusOr<Timing> TimeForests(const coppice::ForestPlan& plan, LlamaModel* draft) {
  return TimeOnHost([&] { return RunForests(plan, draft); });
}

absl::StatusOr<Timing> TimeRounds(const coppice::ForestPlan& forests, LlamaModel* draft,
                                  const StepPlan& plan, LlamaModel* target) {
  return TimeOnHost([&]() -> absl::Status {
    COPPICE_RETURN_IF_ERROR(RunForests(forests, draft));
    return RunStep(plan, target);
  });
}

}  // namespace coppice::bench
