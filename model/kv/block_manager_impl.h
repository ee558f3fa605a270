// The state of BlockManager: sequences with their tries, and the queues of the current round.
// Private to block_manager.cc (operations) and block_manager_integrity.cc (CheckIntegrity).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "model/kv/block_manager.h"
#include "model/kv/block_pool.h"

namespace coppice::model {

static_assert(kBlockSize == 16, "the place masks of a block are 16 bits");

inline int64_t BlocksOf(int64_t tokens) { return (tokens + kBlockSize - 1) / kBlockSize; }
inline uint16_t FreePlaces(const PoolBlock& block) {
  return static_cast<uint16_t>(~(block.live | block.settling));
}

// A token of the trie outside the stable prefix.
struct TrieNode {
  KvNode parent = kPrefixEnd;
  KvNode first_child = kNoKv, next_sibling = kNoKv;
  TokenId token = 0;
  int32_t slot = -1;
  int32_t position = 0;  // in the sequence: does not change when the prefix grows
  bool live = false;
  bool marked = false;  // working space of Retain and Commit
};

// One open sequence: its prefix blocks, its own blocks, its trie.
struct KvSequence {
  bool open = false;
  uint64_t generation = 0;  // distinguishes this sequence from earlier ones with the same handle
  int prefix_length = 0;
  std::vector<int32_t> table;    // prefix blocks
  std::vector<int32_t> scratch;  // kept until Close
  std::vector<int32_t> runs;     // each returned to the pool when its last token is freed
  std::vector<TrieNode> nodes;   // by KvNode
  std::vector<KvNode> live;      // parents before children
  std::vector<KvNode> free_ids;
  std::vector<KvNode> settling_ids;  // free from the next round on
  KvNode first_root = kNoKv;         // first child of the prefix end
  int run_places_used = 0;           // live and settling places of runs

  TrieNode& at(KvNode node) { return nodes[Index(node)]; }
  const TrieNode& at(KvNode node) const { return nodes[Index(node)]; }
};

struct BlockManager::Impl {
  explicit Impl(const BlockManagerOptions& given) : options(given), pool(given.num_blocks) {
    options.scratch_blocks = std::max(options.scratch_blocks, 0);
  }

  struct Filled {
    SequenceHandle sequence;
    uint64_t generation;
    int index;  // index into the table
  };

  KvSequence& Get(SequenceHandle handle) {
    COPPICE_CHECK(handle >= 0 && handle < sequences.size() && sequences[handle].open);
    return sequences[handle];
  }
  const TrieNode& LiveNode(const KvSequence& sequence, KvNode node) const {
    COPPICE_CHECK(Index(node) >= 0 && Index(node) < sequence.nodes.size() &&
                  sequence.at(node).live);
    return sequence.at(node);
  }
  KvNode& ChildrenOf(KvSequence& sequence, KvNode node) {
    return node == kPrefixEnd ? sequence.first_root : sequence.at(node).first_child;
  }
  absl::Status OutOfBlocks(SequenceHandle handle, int64_t needed) const {
    return absl::ResourceExhaustedError(absl::StrCat("sequence ", handle, ": needs ", needed,
                                                     " KV blocks, ", pool.available(), " of ",
                                                     pool.size() - 1, " can be had"));
  }

  int64_t NewPrefixBlocks(const KvSequence& sequence, int64_t tokens) const {
    return BlocksOf(sequence.prefix_length + tokens) - static_cast<int64_t>(sequence.table.size());
  }
  int32_t PushPrefixToken(SequenceHandle handle, TokenId token);
  int32_t TakeSlot(KvSequence& sequence, KvNode parent);
  int32_t TakePlace(KvSequence& sequence, int32_t block, int place);
  // The published block at the end of the prefix, or kCacheRoot; -1 in the middle of a block, or
  // behind one that was filled in this round.
  int32_t PublishedEnd(const KvSequence& sequence) const;
  void FreeNode(SequenceHandle handle, KvNode id);
  void Relink(SequenceHandle handle);
  KvNode CommonNode(const KvSequence& sequence, absl::Span<const KvNode> leaves) const;
  void PublishFilled();
  void SettleSlots();
  absl::Status CheckTable(SequenceHandle handle, std::vector<int32_t>* owners) const;
  absl::Status CheckTrie(SequenceHandle handle, std::vector<int32_t>* owners) const;

  BlockManagerOptions options;
  BlockPool pool;
  std::vector<KvSequence> sequences;
  std::vector<SequenceHandle> free_handles;
  std::vector<Filled> filled;  // prefix blocks that became full in this round
  // Blocks with places freed in this round, each with its sequence; and sequences with node ids
  // freed in this round.
  std::vector<std::pair<int32_t, SequenceHandle>> settling_blocks;
  std::vector<SequenceHandle> settling_sequences;
  uint64_t generations = 0;
  uint64_t queries = 0, hits = 0;
};

}  // namespace coppice::model
