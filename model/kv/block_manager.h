// Bookkeeping of the KV pool and of every sequence's token trie (docs/architecture.md 4): stable
// prefix blocks (immutable when full, hashed, shared by reference count), scratch slots, branch
// runs, commits. Host only: no device call. Thread-compatible: one engine thread owns it.
//
// Life of a sequence:
//   Open(prompt)            adopts cached full prefix blocks; says how many tokens need no prefill
//   Adopt(prompt)           adopts more of them, which came to the cache since
//   AdoptBeginning(prompt)  copies the beginning of a block whose rest differs
//   AppendPrefix(tokens)    slots for the next prefill chunk; the prefix grows
//   AddNode(parent, token)  a scratch slot below the prefix end (kPrefixEnd) or another node
//   Retain(leaves)          frees every node that is neither a leaf nor an ancestor of one
//   Commit(leaves)          moves what all leaves share from scratch to the end of the prefix, and
//                           appends the KV copies that this takes
//   EndRound()              the round's freed slots may be handed out again, never earlier
//   Close()                 frees everything
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/types.h"
#include "plan/step_limits.h"
#include "plan/step_plan.h"

namespace coppice::model {

using SequenceHandle = int32_t;
// A token of the trie outside the stable prefix. Ids of freed nodes are handed out again, and a
// commit moves nodes to another parent, so these are no NodeIds of a TokenTree.
enum class KvNode : int32_t {};
inline constexpr KvNode kPrefixEnd{-1};  // the last token of the stable prefix
inline constexpr KvNode kNoKv{-2};       // none
constexpr int32_t Index(KvNode node) { return static_cast<int32_t>(node); }

struct BlockManagerOptions {
  // Blocks of the pool, block 0 (the sink) included.
  int64_t num_blocks = 0;
  // Scratch blocks per sequence. Nodes that do not fit go to branch runs, which are returned as
  // they empty; a sequence keeps its scratch until Close.
  int scratch_blocks = kDefaultScratchBlocks;
  // Whether full prefix blocks stay after Close for prompts that begin with the same tokens.
  bool prefix_cache = true;
  // A model with windows (model/kv_layout.h): the window of each group of layers, 0 where a row sees
  // everything, and the pages of the pool, page 0 included. Then num_blocks is only how many blocks
  // there may be at once. No windows: a block is its own page.
  std::vector<int> windows = {};
  int64_t num_pages = 0;
};

// In a model with windows, of pages.
struct BlockCounts {
  int64_t total = 0;   // usable: num_blocks - 1
  int64_t used = 0;    // owned by open sequences; with a window, seen by one
  int64_t cached = 0;  // others that the prefix cache keeps; evicted oldest first when none is free
  int64_t free = 0;
};

class BlockManager {
 public:
  explicit BlockManager(const BlockManagerOptions& options);
  ~BlockManager();

  // At most prompt.size() - 1 tokens come from the cache: the last one must be computed. With
  // windows the cached part ends where the cache still has all that the next row sees. A place that
  // other sequences have gone beyond by more than a window is lost once its pages are needed.
  SequenceHandle Open(absl::Span<const TokenId> prompt, int* cached_tokens);
  // For a sequence whose prefix is a part of `prompt` and that has no nodes: adopts blocks that
  // have entered the cache since. Returns how many tokens; 0 in the middle of a block.
  int Adopt(SequenceHandle sequence, absl::Span<const TokenId> prompt);
  // After Adopt: if a cached block begins with the tokens that come next, and continues with
  // others, the common tokens are copied to a block of the sequence. *copies has all copies that
  // the next step will do; these are appended. Returns how many tokens; 0 if there is no such
  // block, for fewer than kLeastCopied tokens, without room, and if these copies and the others
  // could meet. The copies may wait for several rounds: only forward passes write KV, and a step
  // does all copies first.
  static constexpr int kLeastCopied = 4;  // rows; a step with so few rows more hardly takes longer
  int AdoptBeginning(SequenceHandle sequence, absl::Span<const TokenId> prompt,
                     std::vector<KvCopy>* copies);
  void Close(SequenceHandle sequence);

  // Returns the slots of the new prefix tokens, in order. ResourceExhausted when the pool is out of
  // blocks; then nothing has changed.
  absl::StatusOr<std::vector<int32_t>> AppendPrefix(SequenceHandle sequence,
                                                    absl::Span<const TokenId> tokens);
  // How many of `tokens` more tokens AppendPrefix could take now.
  int MostAppended(SequenceHandle sequence, int tokens) const;
  int prefix_length(SequenceHandle sequence) const;
  absl::Span<const int32_t> block_table(SequenceHandle sequence) const;

  // ResourceExhausted when the pool is out of blocks; then nothing has changed.
  absl::StatusOr<KvNode> AddNode(SequenceHandle sequence, KvNode parent, TokenId token);
  // The child of `parent` by `token`; kNoKv if there is none.
  KvNode FindChild(SequenceHandle sequence, KvNode parent, TokenId token) const;
  int32_t slot(SequenceHandle sequence, KvNode node) const;
  KvNode parent(SequenceHandle sequence, KvNode node) const;
  // Slots of the chain from the prefix end down to and including `node`, in position order.
  void AppendChain(SequenceHandle sequence, KvNode node, std::vector<int32_t>* slots) const;
  int chain_length(SequenceHandle sequence, KvNode node) const;

  // Nodes whose tokens were chosen after they were added: gives each another parent, as far from
  // the prefix end as the one before, and another token. No parent may get two children of one
  // token.
  struct Relabelled {
    KvNode node = kNoKv;
    KvNode parent = kPrefixEnd;
    TokenId token = 0;
  };
  void Relabel(SequenceHandle sequence, absl::Span<const Relabelled> nodes);

  void Retain(SequenceHandle sequence, absl::Span<const KvNode> leaves);
  // Moves the tokens on which all leaves agree to the prefix and returns how many there were. A
  // leaf's own token counts; a leaf kPrefixEnd shares nothing. The copies appended may be done in
  // any order: no slot is both source and destination, and no destination occurs twice. Leaves stay
  // valid, except those committed themselves, which become kPrefixEnd. After ResourceExhausted
  // nothing has changed.
  absl::StatusOr<int> Commit(SequenceHandle sequence, absl::Span<const KvNode> leaves,
                             std::vector<KvCopy>* copies);
  void EndRound();

  // Which pages blocks have: what has changed since the last call, for the next plan.
  std::vector<PageChange> TakePageChanges();

  BlockCounts counts() const;
  // Pages, or blocks, that hold nothing. For tests.
  std::vector<int32_t> free_pages() const;
  int nodes(SequenceHandle sequence) const;  // live scratch nodes
  // Pages, or blocks, that the sequence has; shared ones count for each that shares them.
  int64_t held(SequenceHandle sequence) const;
  // Of the blocks that Open would adopt now, the pages, or blocks, that open sequences have.
  int64_t InUse(absl::Span<const TokenId> prompt) const;
  uint64_t cache_queries() const;  // tokens looked up in the prefix cache
  uint64_t cache_hits() const;     // tokens found
  // Checks every invariant: reference counts, free lists, table and trie shapes, hashes, and that
  // no slot has two owners. Internal names the first violation.
  absl::Status CheckIntegrity() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace coppice::model
