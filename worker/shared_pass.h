// Whether the next pass should wait for forests that are due. A pass of few rows takes nearly as long as
// one of many, so sequences whose forests come shortly after one another should share a pass. If
// each began a pass of its own, they would take turns from then on: a forest that comes during a pass
// waits for its end, and by then those of that pass are drafting.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"

namespace coppice::worker {

struct DueForest {
  double due_s = 0;  // absolute; not waited for any longer than that
  int rows = 0;      // of the pass that has it
};

// Returns the time until which to wait, 0 to begin now. Waits if that and one pass of all rows take
// less time than a pass of the `ready_rows` and another of those to come. `pass_s`: seconds of a pass
// by its rows, of which there are at most max_rows. Overdue forests count for nothing, so a draft
// node that does not answer holds nobody up twice.
double WaitForForests(int ready_rows, int max_rows, std::vector<DueForest> due, double now_s,
                      absl::FunctionRef<double(int)> pass_s);

}  // namespace coppice::worker
