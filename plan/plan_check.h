// Checks that a StepPlan is well formed. It is the only check before kernels index memory with the
// plan. Followers get plans over a socket, so a wrong plan must be an error, not a crash. Called
// only by ModelRunner, once per step on each rank. Pure.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "plan/step_plan.h"

namespace coppice {

struct PlanLimits {
  int max_rows = 0;
  int vocab_size = 0;
  int max_positions = 0;
  int64_t blocks = 0;    // of the KV pool, the sink included
  int needs_before = 0;  // needs of the previous step: what `fetch` may name
  // Where blocks have pages: groups of layers, and pages of the pool with the sink. 0: a block is
  // its own page.
  int groups = 0;
  int64_t pages = 0;
  // Columns of StepPlan::states. 0: the model takes none.
  int state_columns = 0;
};

// InvalidArgument names the first field and index that violate the contract of StepPlan or a limit.
// O(rows log rows + chain + table entries).
absl::Status CheckPlan(const StepPlan& plan, const PlanLimits& limits);

}  // namespace coppice
