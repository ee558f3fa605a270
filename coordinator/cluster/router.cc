#include "coordinator/cluster/router.h"

#include <algorithm>
#include <tuple>

#include "sampling/rng.h"

namespace coppice::coordinator {
namespace {

constexpr size_t kPrefixTokens = 32;  // two KV blocks, enough to distinguish system prompts
constexpr size_t kMaxPrefixes = 65536;
constexpr int kFreeGrades = 8;  // free space is compared in eighths of the pool

uint64_t PrefixKey(absl::Span<const TokenId> prompt) {
  return sampling::HashPath(prompt.subspan(0, kPrefixTokens));
}

}  // namespace

std::string Router::Pick(const std::vector<const Node*>& with_room,
                         absl::Span<const TokenId> prompt) const {
  const auto home = prefix_home_.find(PrefixKey(prompt));
  const Node* best = nullptr;
  std::tuple<int64_t, bool, int> best_rank;
  for (const Node* node : with_room) {
    const int64_t total = node->registration.kv_blocks_total();
    const int64_t reserved = this->reserved(node->id);
    const int busy = running(node->id);
    const int64_t free_grade = total > 0 ? (total - reserved) * kFreeGrades / total : 0;
    const std::tuple<int64_t, bool, int> rank(
        free_grade, home != prefix_home_.end() && home->second == node->id, -busy);
    if (best == nullptr || rank > best_rank) {
      best = node;
      best_rank = rank;
    }
  }
  return best == nullptr ? "" : best->id;
}

void Router::Reserve(const std::string& replica, absl::Span<const TokenId> prompt,
                     int64_t kv_blocks) {
  Load& load = load_[replica];
  load.blocks += kv_blocks;
  ++load.sequences;
  if (prefix_home_.size() >= kMaxPrefixes) prefix_home_.clear();
  prefix_home_[PrefixKey(prompt)] = replica;
}

void Router::Release(const std::string& replica, int64_t kv_blocks) {
  const auto it = load_.find(replica);
  if (it == load_.end()) return;
  it->second.blocks = std::max<int64_t>(0, it->second.blocks - kv_blocks);
  it->second.sequences = std::max(0, it->second.sequences - 1);
}

void Router::Forget(const std::string& replica) {
  load_.erase(replica);
  for (auto it = prefix_home_.begin(); it != prefix_home_.end();) {
    it = it->second == replica ? prefix_home_.erase(it) : std::next(it);
  }
}

int64_t Router::reserved(const std::string& replica) const {
  const auto it = load_.find(replica);
  return it == load_.end() ? 0 : it->second.blocks;
}

int Router::running(const std::string& replica) const {
  const auto it = load_.find(replica);
  return it == load_.end() ? 0 : it->second.sequences;
}

}  // namespace coppice::coordinator
