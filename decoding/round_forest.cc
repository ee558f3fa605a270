#include "decoding/round_forest.h"

#include <limits>

#include "absl/container/flat_hash_map.h"
#include "decoding/forest_index.h"
#include "sampling/distribution.h"

namespace coppice::decoding {

RoundForest RoundForestOf(const RoundStart& start, const DraftForest& forest,
                          const BeamDecoder& decoder) {
  const PathTree& paths = decoder.paths();
  const ForestIndex index(forest);
  RoundForest round;
  round.roots = start.roots;
  round.nodes = forest;
  round.log_probs = !forest.log_probs.empty() || forest.proposals.empty()
                        ? forest.log_probs
                        : ProposedLogProbs(forest);
  round.node_path.assign(forest.size(), kNoPath);
  round.first_path = start.paths;
  absl::flat_hash_map<PathId, int> row_of_root;
  for (size_t r = 0; r < start.roots.size(); ++r)
    row_of_root.emplace(start.roots[r], static_cast<int>(r));
  std::vector<int> row_of;  // [new paths] -1: not of the forest
  const auto row = [&](PathId path) {
    if (Index(path) >= start.paths) return row_of[Index(path) - start.paths];
    const auto root = row_of_root.find(path);
    return root == row_of_root.end() ? -1 : root->second;
  };
  for (int i = start.paths; i < paths.size(); ++i) {
    const PathId path{i};
    round.path_parent.push_back(paths.parent(path));
    round.path_token.push_back(paths.token(path));
    const int above = row(paths.parent(path));
    row_of.push_back(above < 0 ? -1 : index.Child(above, paths.token(path)));
    if (row_of.back() >= 0) round.node_path[row_of.back() - forest.num_roots] = path;
  }
  const auto outputs = decoder.last_layer();
  round.outputs.assign(outputs.begin(), outputs.end());
  return round;
}

std::vector<double> ProposedLogProbs(const DraftForest& forest) {
  std::vector<const sampling::Distribution*> row_of(forest.rows(), nullptr);
  for (const Proposal& proposal : forest.proposals)
    row_of[forest.RowOf(proposal.place)] = &proposal.row;
  std::vector<double> log_probs;
  for (int i = 0; i < forest.size(); ++i) {
    const sampling::Distribution* row = row_of[forest.RowOf(forest.parent[i])];
    log_probs.push_back(row == nullptr ? -std::numeric_limits<double>::infinity()
                                       : sampling::LogProbOf(*row, forest.token[i]));
  }
  return log_probs;
}

}  // namespace coppice::decoding
