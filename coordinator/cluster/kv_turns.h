// Who may reserve KV blocks when they are scarce. Counts what each client holds. Keeps the last
// part of every replica for clients that hold nothing. Keeps a replica free for a sequence that
// others have passed for too long. Used by the dispatcher. Pure; event-loop thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "coordinator/cluster/node_registry.h"
#include "coordinator/cluster/router.h"

namespace coppice::coordinator {

class KvTurns {
 public:
  // router must outlive this.
  explicit KvTurns(const Router* router) : router_(router) {}

  // The ready replicas where a sequence of this waiting entry may reserve `blocks` now, of which
  // those of its prompt that running sequences have do not count.
  std::vector<const Node*> WithRoom(const std::vector<const Node*>& ready,
                                    const std::string& client, uint64_t entry, int64_t blocks,
                                    const RoutedPrompt& prompt) const;
  // Whether it would have room if no other client ran anything.
  bool WaitsForOthers(const std::string& client, int64_t blocks,
                      const std::vector<const Node*>& ready) const;
  struct Held {
    int sequences = 0;
    std::map<std::string, int64_t> blocks;  // by replica
  };
  const std::map<std::string, Held>& held() const { return held_; }  // by client

  // Sequence ids ascend. blocks: what it added to the reservations.
  void Started(const std::string& client, uint64_t entry, const std::string& replica,
               uint64_t sequence, int64_t blocks);
  void Ended(const std::string& client, const std::string& replica, uint64_t sequence,
             int64_t blocks);
  // A sequence of the entry needs `blocks` and had no room, and a later one was started.
  void Passed(uint64_t entry, int64_t by_blocks) { passed_[entry] += by_blocks; }
  // Neither this entry nor any before it has room. Keeps a replica for it if later sequences have
  // taken as many blocks as the largest replica has, and other clients hold the room that it needs.
  void Blocked(uint64_t entry, const std::string& client, int64_t blocks,
               const std::vector<const Node*>& ready);
  void Forget(uint64_t entry);  // it no longer waits

 private:
  struct Kept {
    uint64_t entry = 0;  // 0: nothing is kept
    std::string replica;
    int64_t blocks = 0;
    uint64_t after = 0;  // the last sequence that had started
    int64_t late = 0;    // blocks of the sequences that have started since then and still run
  };
  bool HoldsNothing(const std::string& client) const { return held_.count(client) == 0; }
  int64_t MostFor(const std::string& client, const Node& node) const;
  bool MayHold(const std::string& client, int64_t blocks, const Node& node) const;
  bool HasRoom(const Node& node, const std::string& client, uint64_t entry, int64_t blocks) const;

  const Router* const router_;
  std::map<std::string, Held> held_;
  std::unordered_map<uint64_t, int64_t> passed_;
  uint64_t last_sequence_ = 0;
  Kept kept_;
};

}  // namespace coppice::coordinator
