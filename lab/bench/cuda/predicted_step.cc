#include "lab/bench/cuda/predicted_step.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace coppice::bench {
namespace {

namespace fake = kernels::cuda::fake;

// All launches of one name do the same in a step, so that the floor of their sum is the sum of
// floors.
PredictedStep Summed(const Ceilings& ceilings) {
  PredictedStep step;
  step.totals = fake::TotalsByName();
  for (const auto& [name, of] : step.totals) {
    if (name == "copy to device") step.bytes_up += of.bytes;
    if (name == "copy to host") step.bytes_down += of.bytes;
    if (name == "undeclared") step.undeclared += of.launches;
    if (absl::StrContains(name, "copy")) continue;
    step.launches += of.launches;
    const double ms = FloorMs(of, ceilings);
    if (absl::StartsWith(name, "product") || name == "row product" || name == "skinny product") {
      step.products_ms += ms;
    } else if (absl::StartsWith(name, "attention")) {
      step.attention_ms += ms;
      step.attention_gb += static_cast<double>(of.bytes) / 1e9;
    } else {
      step.other_ms += ms;
    }
  }
  return step;
}

absl::StatusOr<PredictedStep> Count(const Ceilings& ceilings,
                                    absl::FunctionRef<absl::Status()> run) {
  for (int i = 0; i < 2; ++i) {  // the first may make room
    fake::ClearTotals();
    COPPICE_RETURN_IF_ERROR(run());
  }
  PredictedStep step = Summed(ceilings);
  if (step.undeclared == 0) return step;
  return absl::InternalError(
      absl::StrCat(step.undeclared, " launches of kernels that declare no cost"));
}

}  // namespace

double FloorMs(const fake::Totals& totals, const Ceilings& ceilings) {
  const double memory = static_cast<double>(totals.bytes) / ceilings.bandwidth;
  return 1e3 * std::max(memory, static_cast<double>(totals.flops) / ceilings.flops);
}

void UseCountingDevice() {
  fake::DeviceSettings device;
  device.memory = size_t{141} << 30;
  device.multiprocessors = 132;
  device.count_only = true;
  // With a folder the model is tuned, and the skinny kernel wins.
  device.work_us = 1;
  device.product_us = [](const fake::FakeProduct&) { return 1e3; };
  fake::Configure(device);
}

absl::StatusOr<PredictedStep> PredictStep(const StepPlan& plan, const Ceilings& ceilings,
                                          LlamaModel* llama) {
  return Count(ceilings, [&]() -> absl::Status {
    COPPICE_RETURN_IF_ERROR(llama->backend()->Submit(plan, llama->decoder()));
    return llama->backend()->Wait().status();
  });
}

absl::StatusOr<PredictedStep> PredictForests(const coppice::ForestPlan& plan,
                                             const Ceilings& ceilings, LlamaModel* draft) {
  return Count(ceilings, [&]() -> absl::Status {
    COPPICE_RETURN_IF_ERROR(draft->backend()->SubmitForests(plan, draft->decoder()));
    return draft->backend()->WaitForests().status();
  });
}

}  // namespace coppice::bench
