#include "worker/shared_pass.h"

#include <algorithm>

namespace coppice::worker {

double WaitForForests(int ready_rows, int max_rows, std::vector<DueForest> due, double now_s,
                      absl::FunctionRef<double(int)> pass_s) {
  std::erase_if(due, [&](const DueForest& forest) { return forest.due_s <= now_s; });
  if (due.empty() || ready_rows <= 0) return 0;
  std::sort(due.begin(), due.end(),
            [](const DueForest& a, const DueForest& b) { return a.due_s < b.due_s; });
  const double of_ready = pass_s(ready_rows);
  double most_saved = 0, until_s = 0;
  int rows = 0;
  for (const DueForest& forest : due) {
    rows += forest.rows;
    if (ready_rows + rows > max_rows) break;
    const double apart = of_ready + pass_s(rows);
    const double together = forest.due_s - now_s + pass_s(ready_rows + rows);
    if (apart - together <= most_saved) continue;
    most_saved = apart - together;
    until_s = forest.due_s;
  }
  return until_s;
}

}  // namespace coppice::worker
