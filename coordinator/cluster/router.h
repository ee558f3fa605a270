// Picks the replica of a sequence among those that have room for it (kv_turns): the one where it
// delays all sequences least, by the tokens of its prompt that are still to be computed there, the
// sequences that run, and the free KV. Keeps track of reservations; beginnings of prompts that
// sequences of a replica have in common count once. No socket; event-loop thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/types/span.h"
#include "base/types.h"
#include "coordinator/cluster/node_registry.h"
#include "coordinator/cluster/prefix_index.h"

namespace coppice::coordinator {

// What routing needs to know of a prompt.
struct RoutedPrompt {
  RoutedPrompt() = default;
  explicit RoutedPrompt(absl::Span<const TokenId> prompt)
      : tokens(prompt.size()), chain(PrefixIndex::ChainOf(prompt)) {}
  size_t tokens = 0;
  std::vector<uint64_t> chain;  // PrefixIndex::ChainOf
};

class Router {
 public:
  // The id of one of the replicas; "" when there is none.
  std::string Pick(const std::vector<const Node*>& with_room, const RoutedPrompt& prompt) const;
  // kv_blocks: what a sequence needs by itself. Added: what it would add to the reservations, less
  // by the blocks of its prompt that running sequences have anyway. With windows a prompt is not
  // kept whole, and sequences count by themselves.
  int64_t Added(const Node& replica, const RoutedPrompt& prompt, int64_t kv_blocks) const;
  void Reserve(const Node& replica, const RoutedPrompt& prompt, int64_t kv_blocks);
  // As it was reserved. Blocks of its prompt stay reserved while others have them.
  void Release(const std::string& replica, const RoutedPrompt& prompt, int64_t kv_blocks);
  void Forget(const std::string& replica);  // drops all data of a lost replica
  int64_t reserved(const std::string& replica) const;
  int running(const std::string& replica) const;

 private:
  struct Load {
    int64_t blocks = 0;    // of each sequence by itself
    int64_t repeated = 0;  // those of them that are in `blocks` again, for another sequence
    // The blocks of prompts, by PrefixIndex::ChainOf, and how many running sequences have each.
    std::unordered_map<uint64_t, int> shared;
    bool windows = false;  // nothing is counted in `shared`
    int sequences = 0;
    uint64_t last_start = 0;  // counts the starts of all replicas; 0: none here
  };
  const Load& LoadOf(const std::string& replica) const;

  const Load idle_;
  std::map<std::string, Load> load_;
  uint64_t starts_ = 0;
  PrefixIndex sent_;
};

}  // namespace coppice::coordinator
