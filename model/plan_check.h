// Whether a StepPlan is well formed: the one check before kernels index memory by it. A plan comes
// over a socket on all ranks but the leader, so a wrong one is an error, not a crash. Called by
// ModelRunner alone, once for each step on each rank. Pure.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/step_plan.h"

namespace coppice::model {

struct PlanLimits {
  int max_rows = 0;
  int vocab_size = 0;
  int max_positions = 0;
  int64_t blocks = 0;    // of the KV pool, the sink included
  int needs_before = 0;  // of the step before: what `fetch` may name
};

// InvalidArgument names the first field and index that break the contract of StepPlan or a limit.
// O(rows log rows + chain + table entries).
absl::Status CheckPlan(const StepPlan& plan, const PlanLimits& limits);

}  // namespace coppice::model
