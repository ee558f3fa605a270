#include "coordinator/cluster/router.h"

#include <algorithm>
#include <utility>

#include "plan/step_plan.h"

namespace coppice::coordinator {
namespace {

// Rows that a sequence is expected to decode; how many it will be is not known.
constexpr double kDecodeRows = 128;

// A replica that is full by this share counts as full by no more.
constexpr double kLeastFree = 1.0 / 16;

// The time that a new sequence adds to all sequences of a replica, in rows of a step: everyone,
// itself included, waits for the rows of its prompt, and each of its own steps has a row of every
// other sequence. Scarce KV makes it dearer: it will be missed, and evicts cached prefixes.
double DelayOf(double new_tokens, double running, double free_share) {
  const double rows = new_tokens * (running + 1) + kDecodeRows * running;
  return rows / std::max(free_share, kLeastFree);
}

}  // namespace

std::string Router::Pick(const std::vector<const Node*>& with_room,
                         const RoutedPrompt& prompt) const {
  if (with_room.size() <= 1) return with_room.empty() ? "" : with_room.front()->id;
  const Node* best = nullptr;
  // Of equals, the one that has had nothing new for longest: so cold prompts fill all caches.
  std::pair<double, uint64_t> best_rank;
  for (const Node* node : with_room) {
    const Load& load = LoadOf(node->id);
    const auto total = static_cast<double>(node->registration.kv_blocks_total());
    const double free = total > 0 ? 1 - static_cast<double>(load.blocks) / total : 0;
    const size_t cached = sent_.Match(node->id, prompt.chain) * kBlockSize;
    const std::pair<double, uint64_t> rank(
        DelayOf(static_cast<double>(prompt.tokens - cached), load.sequences, free),
        load.last_start);
    if (best == nullptr || rank < best_rank) {
      best = node;
      best_rank = rank;
    }
  }
  return best->id;
}

int64_t Router::Added(const Node& replica, const RoutedPrompt& prompt, int64_t kv_blocks) const {
  const Load& load = LoadOf(replica.id);
  const auto shared = [&](uint64_t hash) { return load.shared.count(hash) > 0; };
  return kv_blocks - std::count_if(prompt.chain.begin(), prompt.chain.end(), shared);
}

void Router::Reserve(const Node& replica, const RoutedPrompt& prompt, int64_t kv_blocks) {
  Load& load = load_[replica.id];
  load.windows = !StorageOf(replica).windows.empty();
  load.blocks += kv_blocks;
  if (!load.windows) {
    for (const uint64_t hash : prompt.chain) load.repeated += load.shared[hash]++ > 0 ? 1 : 0;
  }
  ++load.sequences;
  load.last_start = ++starts_;
  sent_.Add(replica.id, prompt.chain, replica.registration.kv_blocks_total());
}

void Router::Release(const std::string& replica, const RoutedPrompt& prompt, int64_t kv_blocks) {
  const auto it = load_.find(replica);
  if (it == load_.end()) return;
  Load& load = it->second;
  load.blocks -= kv_blocks;
  if (!load.windows) {
    for (const uint64_t hash : prompt.chain) {
      const auto shared = load.shared.find(hash);
      if (shared == load.shared.end()) continue;
      if (--shared->second == 0) {
        load.shared.erase(shared);
      } else {
        --load.repeated;
      }
    }
  }
  load.sequences = std::max(0, load.sequences - 1);
}

void Router::Forget(const std::string& replica) {
  load_.erase(replica);
  sent_.Forget(replica);
}

const Router::Load& Router::LoadOf(const std::string& replica) const {
  const auto it = load_.find(replica);
  return it == load_.end() ? idle_ : it->second;
}

int64_t Router::reserved(const std::string& replica) const {
  const Load& load = LoadOf(replica);
  return load.blocks - load.repeated;
}

int Router::running(const std::string& replica) const { return LoadOf(replica).sequences; }

}  // namespace coppice::coordinator
