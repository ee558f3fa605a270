// Whether the next step should wait for forests that are due. A step of few rows takes nearly as
// long as one of many, so sequences whose forests arrive shortly after one another should share
// one. If each began its own step, they would take turns from then on: a forest that arrives during
// a step waits for its end, and by then the sequences of that step are drafting.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"

namespace coppice::worker {

// Sequences that can join the next step, and their rows. Those without a forest could join every
// step.
struct ReadyForStep {
  int sequences = 0, rows = 0;
  int plain = 0, plain_rows = 0;  // of these, those without a forest
};

struct DueForest {
  double due_s = 0;      // absolute; when it should be there
  int rows = 0;          // rows of the step that has it
  double overdue_s = 0;  // absolute; not awaited any longer, but at least until due_s
};

// Returns the time until which to wait, 0 to begin now. Waits if sequences then have more rounds
// per second than if the step began now and the due sequences had the next one. step_s: seconds of
// a step by its rows, of which it has at most max_rows. Overdue forests count for nothing.
double WaitForForests(const ReadyForStep& ready, int max_rows, std::vector<DueForest> due,
                      double now_s, absl::FunctionRef<double(int)> step_s);

}  // namespace coppice::worker
