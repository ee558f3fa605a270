// Time of whole steps as the host sees them: from Submit to the end of Wait.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lab/bench/cuda/llama_model.h"
#include "lab/bench/cuda/report.h"
#include "plan/forest_plan.h"
#include "plan/step_plan.h"

namespace coppice::bench {

struct StepTiming {
  Timing step, submit;  // submit: Submit alone
};

// Medians of several runs, after some that capture the graphs.
absl::StatusOr<Timing> TimeOnHost(absl::FunctionRef<absl::Status()> run);
absl::StatusOr<StepTiming> TimeSteps(const StepPlan& plan, bool graphs, LlamaModel* llama);
// All levels of the forests.
absl::StatusOr<Timing> TimeForests(const coppice::ForestPlan& plan, LlamaModel* draft);
// A round of decoding with drafts: the forests, then the step that verifies this many rows.
absl::StatusOr<Timing> TimeRounds(const coppice::ForestPlan& forests, LlamaModel* draft,
                                  const StepPlan& plan, LlamaModel* target);

}  // namespace coppice::bench
