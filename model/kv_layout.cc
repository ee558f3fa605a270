#include "model/kv_layout.h"

#include <algorithm>
#include <functional>
#include <map>

#include "plan/step_plan.h"

namespace coppice::model {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Layers by window, the layers that see everything first, then the longest windows.
struct ByReach {
  bool operator()(int a, int b) const { return a == 0 ? b != 0 : b != 0 && a > b; }
};
using Kinds = std::map<int, std::vector<int>, ByReach>;

// Room for layers that a page size takes, compared with the layers that there are: the largest
// ratio of all lengths of contexts. A long context has pages of the kinds that reach far alone.
double WorstRoom(const Kinds& kinds, int size) {
  double worst = 1;
  int64_t room = 0, layers = 0;
  for (const auto& [window, of_kind] : kinds) {
    const auto count = static_cast<int64_t>(of_kind.size());
    room += CeilDiv(count, size) * size;
    layers += count;
    worst = std::max(worst, static_cast<double>(room) / static_cast<double>(layers));
  }
  return worst;
}

int64_t GroupsOf(const Kinds& kinds, int size) {
  int64_t groups = 0;
  for (const auto& [window, of_kind] : kinds)
    groups += CeilDiv(static_cast<int64_t>(of_kind.size()), size);
  return groups;
}

}  // namespace

KvLayout KvLayoutOf(const ModelConfig& config, bool free_windows) {
  KvLayout layout;
  layout.layers = config.num_layers;
  Kinds kinds;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const int window = config.layers[layer].window;
    // A window as long as the longest text hides nothing.
    kinds[window < config.max_positions ? window : 0].push_back(layer);
  }
  const bool none = kinds.size() == 1 && kinds.begin()->first == 0;
  if (none || !free_windows || config.takes_states() || kinds.size() > kMostKvGroups) return layout;
  // Of sizes with as little empty room the largest, so that there are few groups.
  double least = 0;
  for (int size = config.num_layers; size > 0; --size) {
    if (GroupsOf(kinds, size) > kMostKvGroups) continue;
    const double room = WorstRoom(kinds, size);
    if (least != 0 && room >= least) continue;
    least = room;
    layout.layers = size;
  }
  layout.places.resize(config.num_layers);
  for (const auto& [window, of_kind] : kinds) {
    for (size_t i = 0; i < of_kind.size(); ++i) {
      const int place = static_cast<int>(i) % layout.layers;
      if (place == 0) layout.windows.push_back(window);
      layout.places[of_kind[i]] = {static_cast<int>(layout.windows.size()) - 1, place};
    }
  }
  return layout;
}

int64_t KvLayout::blocks_per_page(int max_positions) const {
  if (windows.empty()) return 1;
  const int reach = *std::min_element(windows.begin(), windows.end(), ByReach());
  return reach == 0 ? 1 : CeilDiv(max_positions, reach);
}

int64_t KvLayout::PagesOf(int64_t tokens) const {
  const int64_t blocks = CeilDiv(tokens, kBlockSize);
  if (windows.empty()) return blocks;
  int64_t pages = 0;
  for (const int window : windows) {
    const int64_t hidden = window == 0 ? 0 : std::max<int64_t>(0, tokens - window + 1) / kBlockSize;
    pages += blocks - std::min(blocks, hidden);
  }
  return pages;
}

}  // namespace coppice::model
