#include "worker/sent_states.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace coppice::worker {

using decoding::PathId;

SentStates::Lacking SentStates::Ask(const decoding::PathTree& paths, PathId shared,
                                    const decoding::RootTree& roots, int prompt) {
  COPPICE_CHECK(rows_ >= static_cast<uint32_t>(prompt));
  if (asked_) known_.clear();
  const auto known = [&](PathId path) {
    return std::binary_search(known_.begin(), known_.end(), path);
  };
  // Rows of the prompt are 0 to prompt - 1, so a path of n generated tokens ends at row
  // prompt + n - 1.
  const auto row_of = [&](PathId path) {
    return static_cast<uint32_t>(prompt + paths.length(path) - 1);
  };
  asked_ = true;
  asked_rows_ = row_of(shared) + 1;
  std::vector<PathId> stable;  // from row rows_ on
  for (PathId path = shared; path != decoding::kNoPath && row_of(path) >= rows_;
       path = paths.parent(path))
    stable.push_back(path);
  Lacking lacking;
  lacking.rows.first = rows_;
  for (; !stable.empty() && known(stable.back()); stable.pop_back()) ++lacking.rows.first;
  lacking.rows.count = static_cast<uint32_t>(stable.size());

  const TokenTree& tree = roots.tree;
  std::vector<PathId> path_of(tree.rows(), shared);  // by row: the root of the tree first
  for (int i = 0; i < tree.size(); ++i) {
    const PathId path = paths.Find(path_of[tree.RowOf(tree.parent[i])], tree.token[i]);
    path_of[tree.RowOf(NodeId{i})] = path;
    // The row of a root is computed in any case.
    const bool root =
        std::find(roots.ends.begin(), roots.ends.end(), NodeId{i}) != roots.ends.end();
    if (known(path) && !root) continue;
    lacking.nodes.push_back(NodeId{i});
    lacking.rows.paths.push_back(path);
  }
  path_of.erase(path_of.begin());
  std::sort(path_of.begin(), path_of.end());
  asked_paths_ = std::move(path_of);
  return lacking;
}

void SentStates::Answered() {
  if (!std::exchange(asked_, false)) return;
  rows_ = std::max(rows_, asked_rows_);
  known_ = std::move(asked_paths_);
}

}  // namespace coppice::worker
