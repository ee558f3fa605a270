#include "worker/batching_wait.h"

#include <algorithm>

namespace coppice::worker {

double WaitForForests(const ReadyForPass& ready, int max_rows, std::vector<DueForest> due,
                      double now_s, absl::FunctionRef<double(int)> pass_s) {
  std::erase_if(due, [&](const DueForest& forest) { return forest.due_s <= now_s; });
  const int sequences = ready.drafted + ready.plain;
  if (due.empty() || sequences == 0) return 0;
  std::sort(due.begin(), due.end(),
            [](const DueForest& a, const DueForest& b) { return a.due_s < b.due_s; });
  const int ready_rows = ready.drafted_rows + ready.plain_rows;
  const double now_pass = pass_s(ready_rows);
  double most_gained = 1, until_s = 0;
  int waited_for = 0, rows = 0;
  for (const DueForest& forest : due) {
    ++waited_for;
    rows += forest.rows;
    if (ready_rows + rows > max_rows) break;
    const double all_pass = pass_s(ready_rows + rows);
    const double wait = (sequences + waited_for) / (forest.due_s - now_s + all_pass);
    const double take_turns =
        (sequences + ready.plain + waited_for) / (now_pass + pass_s(ready.plain_rows + rows));
    const double share_later = (2 * sequences + waited_for) / (now_pass + ready.draft_s + all_pass);
    const double gained = wait / std::max(take_turns, share_later);
    if (gained <= most_gained) continue;  // also if the cost is not known
    most_gained = gained;
    until_s = forest.due_s;
  }
  return until_s;
}

}  // namespace coppice::worker
