#include "coordinator/cluster/prefix_index.h"

#include <algorithm>

#include "plan/step_plan.h"
#include "sampling/rng.h"

namespace coppice::coordinator {

std::vector<uint64_t> PrefixIndex::ChainOf(absl::Span<const TokenId> prompt) {
  std::vector<uint64_t> chain;
  uint64_t hash = sampling::kRootHash;
  for (size_t begin = 0; begin + kBlockSize < prompt.size() && chain.size() < kMaxChain;
       begin += kBlockSize) {
    for (const TokenId token : prompt.subspan(begin, kBlockSize))
      hash = sampling::ExtendHash(hash, token);
    chain.push_back(hash);
  }
  return chain;
}

size_t PrefixIndex::Match(const std::string& replica, absl::Span<const uint64_t> chain) const {
  const auto sent = replicas_.find(replica);
  if (sent == replicas_.end()) return 0;
  const auto known = [&](uint64_t hash) { return sent->second.places.count(hash) > 0; };
  return std::find_if_not(chain.begin(), chain.end(), known) - chain.begin();
}

void PrefixIndex::Add(const std::string& replica, absl::Span<const uint64_t> chain,
                      int64_t capacity) {
  Sent& sent = replicas_[replica];
  for (auto hash = chain.rbegin(); hash != chain.rend(); ++hash) {
    const auto known = sent.places.find(*hash);
    if (known != sent.places.end()) {
      sent.order.splice(sent.order.begin(), sent.order, known->second);
    } else {
      sent.order.push_front(*hash);
      sent.places[*hash] = sent.order.begin();
    }
  }
  const size_t most = std::clamp<int64_t>(capacity, 0, kMaxBlocks);
  while (sent.order.size() > most) {
    sent.places.erase(sent.order.back());
    sent.order.pop_back();
  }
}

size_t PrefixIndex::size(const std::string& replica) const {
  const auto sent = replicas_.find(replica);
  return sent == replicas_.end() ? 0 : sent->second.order.size();
}

}  // namespace coppice::coordinator
