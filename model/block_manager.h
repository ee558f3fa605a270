// Host-only bookkeeping of the KV pool and of every sequence's token trie (docs/architecture.md 4):
// stable prefix blocks (immutable when full, hashed, shared by reference count), scratch slots,
// branch runs, commits. No device call. Thread-compatible: one engine thread owns it.
//
// Life of a sequence:
//   Open(prompt)            adopts cached full prefix blocks; tells how many prompt tokens need no
//   prefill AppendPrefix(tokens)    slots for the next prefill chunk (prefix grows) AddNode(parent,
//   token)  a scratch slot below the prefix end (kPrefixEnd) or below another node Retain(leaves)
//   frees every node that is not an ancestor of (or equal to) a leaf Commit(leaves)          moves
//   what all leaves share from scratch to the prefix tail; appends to the copy list EndRound()
//   frees of this round take effect: no slot freed in a round is handed out again in it Close()
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/step_plan.h"
#include "base/types.h"

namespace coppice::model {

using SequenceHandle = int32_t;
using KvNode = int32_t;                   // a token of the trie outside the stable prefix
inline constexpr KvNode kPrefixEnd = -1;  // the last token of the stable prefix

struct BlockManagerOptions {
  int64_t num_blocks = 0;  // of the pool, block 0 (the sink) included
  int scratch_blocks = 4;  // per sequence before private chains spill to branch runs
  bool prefix_cache = true;
};

struct BlockCounts {
  int64_t total = 0;   // usable: num_blocks - 1
  int64_t used = 0;    // owned by open sequences
  int64_t cached = 0;  // unowned but kept for the prefix cache; handed out when nothing else is
                       // free, oldest first
  int64_t free = 0;
};

class BlockManager {
 public:
  explicit BlockManager(const BlockManagerOptions& options);
  ~BlockManager();

  // At most prompt.size() - 1 tokens come from the cache, so that one row at least is computed.
  SequenceHandle Open(absl::Span<const TokenId> prompt, int* cached_tokens);
  void Close(SequenceHandle sequence);

  // Slots of the new prefix tokens, in order. ResourceExhausted (and nothing changed) when the pool
  // is out of blocks.
  absl::StatusOr<std::vector<int32_t>> AppendPrefix(SequenceHandle sequence,
                                                    absl::Span<const TokenId> tokens);
  int prefix_length(SequenceHandle sequence) const;
  absl::Span<const int32_t> block_table(SequenceHandle sequence) const;

  // ResourceExhausted (and nothing changed) when the pool is out of blocks.
  absl::StatusOr<KvNode> AddNode(SequenceHandle sequence, KvNode parent, TokenId token);
  // The child of `parent` by `token`, if there is one.
  KvNode FindChild(SequenceHandle sequence, KvNode parent, TokenId token, bool* found) const;
  int32_t slot(SequenceHandle sequence, KvNode node) const;
  KvNode parent(SequenceHandle sequence, KvNode node) const;
  // Slots of the chain from the prefix end down to and including `node`, in position order.
  void AppendChain(SequenceHandle sequence, KvNode node, std::vector<int32_t>* slots) const;
  int chain_length(SequenceHandle sequence, KvNode node) const;

  void Retain(SequenceHandle sequence, absl::Span<const KvNode> leaves);
  // The tokens that every leaf shares (each leaf counts with itself; a leaf kPrefixEnd shares
  // nothing) become prefix tokens. Copies are appended in an order-free list: sources and
  // destinations disjoint, destinations unique. Leaves' KvNode stay valid, except those committed
  // themselves, which become kPrefixEnd. Returns the number of tokens moved. ResourceExhausted:
  // nothing changed.
  absl::StatusOr<int> Commit(SequenceHandle sequence, absl::Span<const KvNode> leaves,
                             std::vector<KvCopy>* copies);
  void EndRound();

  BlockCounts counts() const;
  int nodes(SequenceHandle sequence) const;  // live scratch nodes
  uint64_t cache_queries() const;            // tokens looked up in the prefix cache
  uint64_t cache_hits() const;               // tokens found
  // Every invariant: reference counts, free lists, table and trie shapes, no slot owned twice,
  // hashes. Internal names the first violation.
  absl::Status CheckIntegrity() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace coppice::model
