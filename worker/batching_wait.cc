#include "worker/batching_wait.h"

#include <algorithm>

namespace coppice::worker {

double WaitForForests(const ReadyForStep& ready, int max_rows, std::vector<DueForest> due,
                      double now_s, absl::FunctionRef<double(int)> step_s) {
  if (ready.sequences == 0) return 0;
  std::sort(due.begin(), due.end(),
            [](const DueForest& a, const DueForest& b) { return a.due_s < b.due_s; });
  double most_gained = 1, until_s = 0, overdue_s = 0;
  int waited_for = 0, rows = 0;
  for (const DueForest& forest : due) {
    const double its_overdue_s = std::max(forest.due_s, forest.overdue_s);
    if (its_overdue_s <= now_s) continue;
    overdue_s = std::max(overdue_s, its_overdue_s);
    ++waited_for;
    rows += forest.rows;
    if (ready.rows + rows > max_rows) break;
    const double wait_s = std::max(0.0, forest.due_s - now_s) + step_s(ready.rows + rows);
    const double turns_s = step_s(ready.rows) + step_s(ready.plain_rows + rows);
    const double gained = turns_s / wait_s * (ready.sequences + waited_for) /
                          (ready.sequences + ready.plain + waited_for);
    if (gained <= most_gained) continue;
    most_gained = gained;
    until_s = overdue_s;
  }
  return until_s;
}

}  // namespace coppice::worker
