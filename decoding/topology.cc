#include "decoding/topology.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/printable_name.h"

namespace coppice::decoding {
namespace {

absl::Status Bad(absl::string_view text, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("draft_tree: '", PrintableName(text), "': ", what));
}

// EAGLE's static tree (26 nodes with the root): mc_sim_7b_63 of SafeAILab/EAGLE, model/choices.py,
// given there as paths of child ranks.
Topology EagleTopology() {
  return {{{4}, {3, 2, 2, 1}, {3, 2, 2, 1, 0, 0, 0, 0}, {3, 0, 0, 0, 0, 0, 0, 0}, {2, 0, 0}},
          false};
}

absl::StatusOr<Topology> ParseCounts(absl::string_view text) {
  Topology topology;
  int level_size = 1;
  int nodes = 0;
  for (absl::string_view part : absl::StrSplit(text, '-')) {
    int count = 0;
    if (part.empty() || !absl::SimpleAtoi(part, &count) || count < 1) {
      return Bad(text, "want '', 'chain', 'eagle' or children per node of each level as in 4-2-1");
    }
    if (count > kMaxTopologyNodes) {
      return Bad(text, absl::StrCat("more than ", kMaxTopologyNodes, " children"));
    }
    topology.children.emplace_back(level_size, count);
    level_size *= count;
    nodes += level_size;
    if (nodes > kMaxTopologyNodes) {
      return Bad(text, absl::StrCat("more than ", kMaxTopologyNodes, " nodes"));
    }
    if (topology.depth() > kMaxTopologyDepth) {
      return Bad(text, absl::StrCat("more than ", kMaxTopologyDepth, " levels"));
    }
  }
  return topology;
}

}  // namespace

int Topology::Children(int level, int position) const {
  if (level < depth()) return children[level][position];
  return open ? 1 : 0;
}

int Topology::FirstChild(int level, int position) const {
  if (level >= depth()) return position;
  const std::vector<int>& counts = children[level];
  return std::accumulate(counts.begin(), counts.begin() + position, 0);
}

std::vector<int> Topology::LayerSizes() const {
  std::vector<int> sizes;
  for (const std::vector<int>& counts : children) {
    sizes.push_back(std::accumulate(counts.begin(), counts.end(), 0));
  }
  return sizes;
}

int Topology::MostChildren() const {
  int most = 0;
  for (const std::vector<int>& counts : children) {
    most = std::max(most, *std::max_element(counts.begin(), counts.end()));
  }
  return most;
}

int Topology::Nodes(int depth) const {
  const std::vector<int> sizes = LayerSizes();
  const int listed = std::min(depth, this->depth());
  const int below = open ? depth - listed : 0;
  return std::accumulate(sizes.begin(), sizes.begin() + listed, 0) + below * sizes.back();
}

int Topology::Widest(int depth) const {
  const std::vector<int> sizes = LayerSizes();
  return depth == 0
             ? 0
             : *std::max_element(sizes.begin(), sizes.begin() + std::min(depth, this->depth()));
}

absl::StatusOr<Topology> ParseTopology(absl::string_view text, int width) {
  if (text == "chain") return Topology{{{1}}, true};
  if (text == "eagle") return EagleTopology();
  if (!text.empty()) return ParseCounts(text);
  if (width < 1 || width > kMaxTopologyNodes) {
    return absl::InvalidArgumentError(absl::StrCat("draft_width: must be between 1 and ",
                                                   kMaxTopologyNodes, " in a tree, got ", width));
  }
  return Topology{{{width}}, true};
}

}  // namespace coppice::decoding
