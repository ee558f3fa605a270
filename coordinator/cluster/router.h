// Picks the replica of a sequence among those that have room for it (kv_turns). Prefers the freest,
// then one that has seen the start of the prompt, then the least busy. Keeps track of reservations.
// No socket; event-loop thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/types/span.h"
#include "base/types.h"
#include "coordinator/cluster/node_registry.h"

namespace coppice::coordinator {

class Router {
 public:
  // The id of one of the replicas; "" when there is none.
  std::string Pick(const std::vector<const Node*>& with_room,
                   absl::Span<const TokenId> prompt) const;
  void Reserve(const std::string& replica, absl::Span<const TokenId> prompt, int64_t kv_blocks);
  void Release(const std::string& replica, int64_t kv_blocks);
  void Forget(const std::string& replica);  // drops all data of a lost replica
  int64_t reserved(const std::string& replica) const;
  int running(const std::string& replica) const;

 private:
  struct Load {
    int64_t blocks = 0;
    int sequences = 0;
  };
  std::map<std::string, Load> load_;
  // Hash of a prompt's first tokens -> replica.
  std::unordered_map<uint64_t, std::string> prefix_home_;
};

}  // namespace coppice::coordinator
