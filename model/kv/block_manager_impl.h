// The state of BlockManager: sequences with their tries, and the queues of the current round.
// Private to block_manager.cc (nodes and commits), block_manager_prefix.cc (the stable prefix) and
// block_manager_integrity.cc (CheckIntegrity).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
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
  std::vector<int32_t> table;  // prefix blocks
  // [groups] With windows: the sequence is a viewer of its prefix blocks from this one on.
  std::vector<int64_t> first_seen;
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
  explicit Impl(const BlockManagerOptions& given)
      : options(given), pool(given.num_blocks, given.windows, given.num_pages) {
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
  absl::Status OutOfBlocks(SequenceHandle handle, const BlockPool::Amount& needed) const {
    const bool paged = paging().groups() > 0;
    const BlockPool::Amount available = pool.available();
    return absl::ResourceExhaustedError(
        absl::StrCat("sequence ", handle, ": needs ", paged ? needed.pages : needed.blocks, " KV ",
                     paged ? "pages" : "blocks", ", ", paged ? available.pages : available.blocks,
                     " of ", paged ? paging().size() - 1 : pool.size() - 1, " can be had"));
  }

  const PagePool& paging() const { return pool.pages(); }
  // The groups with windows in which the sequence is a viewer of block `index` of its table.
  GroupSet SeenAt(const KvSequence& sequence, int64_t index) const {
    GroupSet seen = 0;
    for (int group = 0; group < paging().groups(); ++group) {
      if (index >= sequence.first_seen[group]) seen |= GroupSet{1} << group;
    }
    return seen & paging().windowed();
  }
  // What more tokens at the end of the prefix take, if the sequence sees what first_seen says.
  BlockPool::Amount NewPrefixBlocks(const KvSequence& sequence, int64_t tokens,
                                    const std::vector<int64_t>& first_seen) const {
    BlockPool::Amount amount;
    const auto begin = static_cast<int64_t>(sequence.table.size());
    const int64_t end = BlocksOf(sequence.prefix_length + tokens);
    amount.blocks = end - begin;
    for (const int64_t first : first_seen) amount.pages += end - std::clamp(first, begin, end);
    return amount;
  }
  // first_seen of a sequence whose rows to come all have positions from `length` on.
  std::vector<int64_t> FirstSeen(int64_t length) const {
    std::vector<int64_t> first(paging().groups());
    for (int group = 0; group < paging().groups(); ++group)
      first[group] = paging().FirstSeen(group, length);
    return first;
  }
  // The sequence is no viewer any more of blocks before these. now: their pages may be handed out
  // in this round.
  void Advance(KvSequence* sequence, const std::vector<int64_t>& first_seen, bool now);
  void AddViews(const KvSequence& sequence, int64_t index, int32_t block);
  // Appends the copies of a token to the last block of the table: one for each page that the
  // sequence sees.
  void AppendCopies(const KvSequence& sequence, int32_t source, int32_t destination,
                    std::vector<KvCopy>* copies) const;
  std::vector<int32_t> FindAdoptable(const KvSequence& sequence,
                                     absl::Span<const TokenId> prompt) const;
  // How many of these blocks, which follow the sequence's own, it may adopt.
  size_t Adoptable(const KvSequence& sequence, absl::Span<const int32_t> found) const;
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
  std::vector<int32_t> CountViewers() const;
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
