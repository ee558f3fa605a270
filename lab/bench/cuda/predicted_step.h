// What a step would take if every kernel reached the ceilings that are assumed: the real planner
// and backend enqueue it on the simulated device, which counts launches, bytes and operations and
// computes nothing. A prediction, not a measurement.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/simulator/fake/fake_device.h"
#include "lab/bench/cuda/llama_model.h"
#include "plan/forest_plan.h"
#include "plan/step_plan.h"

namespace coppice::bench {

struct Ceilings {
  double bandwidth = 4.3e12, flops = 7.9e14, gap_us = 1.3;  // gap: idle device between two launches
};

// The least time of so much work: memory or arithmetic, whichever takes longer.
double FloorMs(const kernels::cuda::fake::Totals& totals, const Ceilings& ceilings);

struct PredictedStep {
  double products_ms = 0, attention_ms = 0, other_ms = 0, attention_gb = 0;
  int64_t launches = 0, undeclared = 0, bytes_up = 0, bytes_down = 0;
  std::map<std::string, kernels::cuda::fake::Totals> totals;  // by kernel

  double floor_ms() const { return products_ms + attention_ms + other_ms; }
  double with_gaps_ms(const Ceilings& ceilings) const {
    return floor_ms() + static_cast<double>(launches) * ceilings.gap_us / 1e3;
  }
};

// A simulated device that only counts, of the memory of an H200.
void UseCountingDevice();
// Internal when a kernel does not declare what it costs.
absl::StatusOr<PredictedStep> PredictStep(const StepPlan& plan, const Ceilings& ceilings,
                                          LlamaModel* llama);
// All levels of the forests.
absl::StatusOr<PredictedStep> PredictForests(const coppice::ForestPlan& plan,
                                             const Ceilings& ceilings, LlamaModel* draft);

}  // namespace coppice::bench
