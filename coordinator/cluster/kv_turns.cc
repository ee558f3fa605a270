#include "coordinator/cluster/kv_turns.h"

#include <algorithm>

namespace coppice::coordinator {
namespace {

// The part of each replica that is left to clients that hold nothing. Large enough for a few
// ordinary requests, so that newcomers need not wait for long ones; small, since it is not used
// otherwise.
constexpr int64_t kNewcomersPart = 8;

}  // namespace

// How many of the replica's blocks may be reserved in total after this client got more.
int64_t KvTurns::MostFor(const std::string& client, const Node& node) const {
  const int64_t total = node.registration.kv_blocks_total();
  return HoldsNothing(client) ? total : total - (total + kNewcomersPart - 1) / kNewcomersPart;
}

bool KvTurns::MayHold(const std::string& client, int64_t blocks, const Node& node) const {
  const auto held = held_.find(client);
  if (held == held_.end()) return true;  // a client that holds nothing is not limited
  const auto here = held->second.blocks.find(node.id);
  return (here == held->second.blocks.end() ? 0 : here->second) + blocks <= MostFor(client, node);
}

bool KvTurns::WaitsForOthers(const std::string& client, int64_t blocks,
                             const std::vector<const Node*>& ready) const {
  return std::any_of(ready.begin(), ready.end(),
                     [&](const Node* node) { return MayHold(client, blocks, *node); });
}

bool KvTurns::HasRoom(const Node& node, const std::string& client, uint64_t entry,
                      int64_t blocks) const {
  // Later sequences may use what the kept one will not need.
  if (kept_.entry != 0 && kept_.entry != entry && kept_.replica == node.id &&
      kept_.late + blocks + kept_.blocks > node.registration.kv_blocks_total())
    return false;
  if (HoldsNothing(client) && router_->running(node.id) == 0) return true;
  return router_->reserved(node.id) + blocks <= MostFor(client, node);
}

std::vector<const Node*> KvTurns::WithRoom(const std::vector<const Node*>& ready,
                                           const std::string& client, uint64_t entry,
                                           int64_t blocks, const RoutedPrompt& prompt) const {
  std::vector<const Node*> found;
  for (const Node* node : ready) {
    if (HasRoom(*node, client, entry, router_->Added(*node, prompt, blocks))) found.push_back(node);
  }
  return found;
}

void KvTurns::Started(const std::string& client, uint64_t entry, const std::string& replica,
                      uint64_t sequence, int64_t blocks) {
  Held& held = held_[client];
  ++held.sequences;
  held.blocks[replica] += blocks;
  last_sequence_ = sequence;
  Forget(entry);
  if (kept_.entry != 0 && kept_.replica == replica) kept_.late += blocks;
}

void KvTurns::Ended(const std::string& client, const std::string& replica, uint64_t sequence,
                    int64_t blocks) {
  Held& held = held_[client];
  held.blocks[replica] -= blocks;
  if (--held.sequences == 0) held_.erase(client);
  if (kept_.entry != 0 && kept_.replica == replica && sequence > kept_.after) kept_.late -= blocks;
}

void KvTurns::Blocked(uint64_t entry, const std::string& client, int64_t blocks,
                      const std::vector<const Node*>& ready) {
  const auto kept_is = [this](const Node* node) { return node->id == kept_.replica; };
  if (std::none_of(ready.begin(), ready.end(), kept_is)) kept_ = {};
  const auto passed = passed_.find(entry);
  if (kept_.entry != 0 || passed == passed_.end()) return;
  int64_t largest = 0;
  const Node* freest = nullptr;
  const auto free = [this](const Node& node) {
    return node.registration.kv_blocks_total() - router_->reserved(node.id);
  };
  for (const Node* node : ready) {
    largest = std::max(largest, node->registration.kv_blocks_total());
    if (!MayHold(client, blocks, *node)) continue;
    if (freest == nullptr || free(*node) > free(*freest)) freest = node;
  }
  if (freest == nullptr || passed->second < largest) return;
  kept_ = {entry, freest->id, blocks, last_sequence_, 0};
}

void KvTurns::Forget(uint64_t entry) {
  passed_.erase(entry);
  if (kept_.entry == entry) kept_ = {};
}

}  // namespace coppice::coordinator
