// Which beginnings of prompts each replica has been sent lately: an estimate of what its prefix
// cache has, without a message. Used by the router. Pure; event-loop thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/types/span.h"
#include "base/types.h"

namespace coppice::coordinator {

class PrefixIndex {
 public:
  // A prompt is compared up to this many blocks, and this many are kept for a replica.
  static constexpr size_t kMaxChain = 2048;  // 32,768 tokens
  static constexpr size_t kMaxBlocks = 32768;

  // A running hash of the prompt's tokens at the end of each block of kBlockSize, as far as a
  // prefix cache may serve them: the last token is always computed.
  static std::vector<uint64_t> ChainOf(absl::Span<const TokenId> prompt);

  // How many blocks of the chain, from its beginning, the replica has been sent.
  size_t Match(const std::string& replica, absl::Span<const uint64_t> chain) const;
  // The replica is sent a prompt. Forgets what has not been sent for longest, ends of prompts
  // before their beginnings, beyond `capacity` blocks (of its pool) or kMaxBlocks.
  void Add(const std::string& replica, absl::Span<const uint64_t> chain, int64_t capacity);
  void Forget(const std::string& replica) { replicas_.erase(replica); }
  size_t size(const std::string& replica) const;  // blocks that are kept

 private:
  struct Sent {
    std::list<uint64_t> order;  // sent last first
    std::unordered_map<uint64_t, std::list<uint64_t>::iterator> places;
  };
  std::map<std::string, Sent> replicas_;
};

}  // namespace coppice::coordinator
