// Picks the replica of a sequence among those that have room for it (kv_turns): the one where it
// delays all sequences least, by the tokens of its prompt that are still to be computed there, the
// sequences that run, and the free KV. Keeps track of reservations. No socket; event-loop thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/types.h"
#include "coordinator/cluster/node_registry.h"
#include "coordinator/cluster/prefix_index.h"

namespace coppice::coordinator {

class Router {
 public:
  // The id of one of the replicas; "" when there is none.
  std::string Pick(const std::vector<const Node*>& with_room,
                   absl::Span<const TokenId> prompt) const;
  void Reserve(const Node& replica, absl::Span<const TokenId> prompt, int64_t kv_blocks);
  void Release(const std::string& replica, int64_t kv_blocks);
  void Forget(const std::string& replica);  // drops all data of a lost replica
  int64_t reserved(const std::string& replica) const;
  int running(const std::string& replica) const;

 private:
  struct Load {
    int64_t blocks = 0;
    int sequences = 0;
    uint64_t last_start = 0;  // counts the starts of all replicas; 0: none here
  };
  Load LoadOf(const std::string& replica) const;

  std::map<std::string, Load> load_;
  uint64_t starts_ = 0;
  PrefixIndex sent_;
};

}  // namespace coppice::coordinator
