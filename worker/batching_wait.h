// Whether the next pass should wait for forests that are due. A pass of few rows takes nearly as
// long as one of many, so sequences whose forests come shortly after one another should share one.
// If each began a pass of its own, they would take turns from then on: a forest that comes during a
// pass waits for its end, and by then those of that pass are drafting.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"

namespace coppice::worker {

// Sequences that can join the next pass.
struct ReadyForPass {
  // With a forest: their next round begins with a draft, which takes draft_s.
  int drafted = 0, drafted_rows = 0;
  double draft_s = 0;
  // Without one: they can join every pass.
  int plain = 0, plain_rows = 0;
};

struct DueForest {
  double due_s = 0;  // absolute; it is not awaited any longer
  int rows = 0;      // rows of the step that has it
};

// Returns the time until which to wait, 0 to begin now. Waits if sequences then have more rounds per
// second than if the pass began now and those that are due had the next one, with or without those
// that are ready now. pass_s: seconds of a pass by its rows, of which it has at most max_rows.
// Overdue forests count for nothing.
double WaitForForests(const ReadyForPass& ready, int max_rows, std::vector<DueForest> due,
                      double now_s, absl::FunctionRef<double(int)> pass_s);

}  // namespace coppice::worker
