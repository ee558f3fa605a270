// The rules that the router is compared with.
#include <memory>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "coordinator/cluster/prefix_index.h"
#include "lab/bench/routing/routing_simulation.h"
#include "plan/step_plan.h"
#include "sampling/rng.h"

namespace coppice::lab {

using coordinator::Node;
using coordinator::PrefixIndex;
using coordinator::RoutedPrompt;
using coordinator::Router;
using Room = std::vector<const Node*>;

namespace {

// The node with the greatest rank; the first of equals.
template <typename Rank>
const Node* Greatest(const Room& room, const Rank& rank) {
  const Node* best = room.empty() ? nullptr : room.front();
  for (const Node* node : room) {
    if (rank(*node) > rank(*best)) best = node;
  }
  return best;
}

std::string IdOf(const Node* node) { return node == nullptr ? "" : node->id; }

}  // namespace

std::string ByRouter(const Router& router, const Room& room, absl::Span<const TokenId> prompt) {
  return router.Pick(room, RoutedPrompt(prompt));
}

std::string ByLeastLoad(const Router& router, const Room& room, absl::Span<const TokenId> prompt) {
  (void)prompt;
  return IdOf(Greatest(room, [&](const Node& node) {
    return std::pair(-router.running(node.id), -router.reserved(node.id));
  }));
}

RoutingRule ByHomeOf32() {
  constexpr size_t kPrefixTokens = 32;
  constexpr int64_t kFreeGrades = 8;
  const auto homes = std::make_shared<std::unordered_map<uint64_t, std::string>>();
  return [homes](const Router& router, const Room& room, absl::Span<const TokenId> prompt) {
    std::string& home = (*homes)[sampling::HashPath(prompt.subspan(0, kPrefixTokens))];
    const std::string chosen = IdOf(Greatest(room, [&](const Node& node) {
      const int64_t total = node.registration.kv_blocks_total();
      return std::tuple((total - router.reserved(node.id)) * kFreeGrades / total, node.id == home,
                        -router.running(node.id));
    }));
    if (!chosen.empty()) home = chosen;
    return chosen;
  };
}

RoutingRule ByMatchLessLoad() {
  const auto sent = std::make_shared<PrefixIndex>();
  return [sent](const Router& router, const Room& room, absl::Span<const TokenId> prompt) {
    const std::vector<uint64_t> chain = PrefixIndex::ChainOf(prompt);
    double mean = 0;
    for (const Node* node : room)
      mean += router.running(node->id) / static_cast<double>(room.size());
    const Node* chosen = Greatest(room, [&](const Node& node) {
      const double matched = static_cast<double>(sent->Match(node.id, chain) * kBlockSize);
      return matched / static_cast<double>(prompt.size()) -
             (router.running(node.id) - mean) / std::max(1.0, mean);
    });
    if (chosen != nullptr) sent->Add(chosen->id, chain, chosen->registration.kv_blocks_total());
    return IdOf(chosen);
  };
}

}  // namespace coppice::lab
