#include "model/kv/block_manager.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>
#include <vector>

#include "model/kv/block_manager_impl.h"

namespace coppice::model {

BlockManager::BlockManager(const BlockManagerOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}
BlockManager::~BlockManager() = default;

void BlockManager::Close(SequenceHandle handle) {
  KvSequence& sequence = impl_->Get(handle);
  for (int32_t block : sequence.runs) impl_->pool.Release(block);
  for (int32_t block : sequence.scratch) impl_->pool.Release(block);
  const auto end = static_cast<int64_t>(sequence.table.size());
  impl_->Advance(&sequence, std::vector<int64_t>(impl_->paging().groups(), end), /*now=*/false);
  // Tail first, so a block can be evicted before its parent.
  for (size_t i = sequence.table.size(); i-- > 0;) impl_->pool.Release(sequence.table[i]);
  sequence = KvSequence();
  impl_->free_handles.push_back(handle);
}

int32_t BlockManager::Impl::TakePlace(KvSequence& sequence, int32_t block, int place) {
  pool.at(block).live |= static_cast<uint16_t>(1u << place);
  if (pool.at(block).use == BlockUse::kRun) ++sequence.run_places_used;
  return block * kBlockSize + place;
}

// A slot for a child of `parent`, or -1 when the pool is out of blocks. Tries in this order: the
// place after the parent's in the parent's run, so that a long branch fills its run in order; the
// scratch; any other place of a run; a new run. So a sequence takes a new block only when all its
// places are in use.
int32_t BlockManager::Impl::TakeSlot(KvSequence& sequence, KvNode parent) {
  if (parent != kPrefixEnd) {
    const int32_t slot = sequence.at(parent).slot;
    const int32_t block = slot / kBlockSize;
    const int next = slot % kBlockSize + 1;
    if (pool.at(block).use == BlockUse::kRun && (FreePlaces(pool.at(block)) >> next & 1) != 0) {
      return TakePlace(sequence, block, next);
    }
  }
  for (int32_t block : sequence.scratch) {
    const uint16_t places = FreePlaces(pool.at(block));
    if (places != 0) return TakePlace(sequence, block, std::countr_zero(places));
  }
  const bool scratch_grows = sequence.scratch.size() < options.scratch_blocks;
  if (!scratch_grows && sequence.run_places_used < sequence.runs.size() * kBlockSize) {
    for (int32_t block : sequence.runs) {
      const uint16_t places = FreePlaces(pool.at(block));
      if (places != 0) return TakePlace(sequence, block, std::countr_zero(places));
    }
  }
  if (!pool.CanTake(pool.WholeBlock())) return -1;
  const int32_t block = pool.Take(scratch_grows ? BlockUse::kScratch : BlockUse::kRun);
  (scratch_grows ? sequence.scratch : sequence.runs).push_back(block);
  return TakePlace(sequence, block, 0);
}

absl::StatusOr<KvNode> BlockManager::AddNode(SequenceHandle handle, KvNode parent, TokenId token) {
  const KvNode existing = FindChild(handle, parent, token);
  if (existing != kNoKv) return existing;
  KvSequence& sequence = impl_->Get(handle);
  const int32_t slot = impl_->TakeSlot(sequence, parent);
  if (slot < 0) return impl_->OutOfBlocks(handle, impl_->pool.WholeBlock());
  KvNode id;
  if (sequence.free_ids.empty()) {
    id = KvNode(sequence.nodes.size());
    sequence.nodes.emplace_back();
  } else {
    id = sequence.free_ids.back();
    sequence.free_ids.pop_back();
  }
  TrieNode& node = sequence.at(id);
  node = TrieNode();
  node.parent = parent;
  node.token = token;
  node.slot = slot;
  node.position = parent == kPrefixEnd ? sequence.prefix_length : sequence.at(parent).position + 1;
  node.live = true;
  KvNode& first = impl_->ChildrenOf(sequence, parent);
  node.next_sibling = first;
  first = id;
  sequence.live.push_back(id);
  return id;
}

KvNode BlockManager::FindChild(SequenceHandle handle, KvNode parent, TokenId token) const {
  KvSequence& sequence = impl_->Get(handle);
  if (parent != kPrefixEnd) impl_->LiveNode(sequence, parent);
  KvNode child = impl_->ChildrenOf(sequence, parent);
  while (child != kNoKv && sequence.at(child).token != token) {
    child = sequence.at(child).next_sibling;
  }
  return child;
}

int32_t BlockManager::slot(SequenceHandle handle, KvNode node) const {
  return impl_->LiveNode(impl_->Get(handle), node).slot;
}
KvNode BlockManager::parent(SequenceHandle handle, KvNode node) const {
  return impl_->LiveNode(impl_->Get(handle), node).parent;
}

void BlockManager::AppendChain(SequenceHandle handle, KvNode node,
                               std::vector<int32_t>* slots) const {
  const KvSequence& sequence = impl_->Get(handle);
  const size_t begin = slots->size();
  for (; node != kPrefixEnd; node = sequence.at(node).parent) {
    slots->push_back(impl_->LiveNode(sequence, node).slot);
  }
  std::reverse(slots->begin() + begin, slots->end());
}

int BlockManager::chain_length(SequenceHandle handle, KvNode node) const {
  const KvSequence& sequence = impl_->Get(handle);
  if (node == kPrefixEnd) return 0;
  return impl_->LiveNode(sequence, node).position - sequence.prefix_length + 1;
}

// Slot and id may be handed out again from the next round on.
void BlockManager::Impl::FreeNode(SequenceHandle handle, KvNode id) {
  KvSequence& sequence = sequences[handle];
  TrieNode& node = sequence.at(id);
  PoolBlock& block = pool.at(node.slot / kBlockSize);
  const uint16_t bit = static_cast<uint16_t>(1u << node.slot % kBlockSize);
  if (block.settling == 0) settling_blocks.emplace_back(node.slot / kBlockSize, handle);
  block.live &= static_cast<uint16_t>(~bit);
  block.settling |= bit;
  if (sequence.settling_ids.empty()) settling_sequences.push_back(handle);
  sequence.settling_ids.push_back(id);
  node.live = false;
}

// Frees the live nodes that are not marked, clears the marks of the others and rebuilds the child
// lists.
void BlockManager::Impl::Relink(SequenceHandle handle) {
  KvSequence& sequence = sequences[handle];
  std::vector<KvNode> kept;
  kept.reserve(sequence.live.size());
  for (KvNode id : sequence.live) {
    TrieNode& node = sequence.at(id);
    if (!node.marked) {
      FreeNode(handle, id);
      continue;
    }
    node.marked = false;
    node.first_child = kNoKv;
    kept.push_back(id);
  }
  sequence.live = std::move(kept);
  sequence.first_root = kNoKv;
  for (KvNode id : sequence.live) {
    TrieNode& node = sequence.at(id);
    KvNode& first = ChildrenOf(sequence, node.parent);
    node.next_sibling = first;
    first = id;
  }
}

void BlockManager::Relabel(SequenceHandle handle, absl::Span<const Relabelled> nodes) {
  KvSequence& sequence = impl_->Get(handle);
  for (const Relabelled& relabelled : nodes) {
    impl_->LiveNode(sequence, relabelled.node);
    const int32_t above = relabelled.parent == kPrefixEnd
                              ? sequence.prefix_length - 1
                              : impl_->LiveNode(sequence, relabelled.parent).position;
    TrieNode& node = sequence.at(relabelled.node);
    COPPICE_CHECK(node.position == above + 1);
    node.parent = relabelled.parent;
    node.token = relabelled.token;
  }
  for (KvNode id : sequence.live) sequence.at(id).marked = true;
  impl_->Relink(handle);
}

void BlockManager::Retain(SequenceHandle handle, absl::Span<const KvNode> leaves) {
  KvSequence& sequence = impl_->Get(handle);
  for (KvNode leaf : leaves) {
    for (KvNode id = leaf; id != kPrefixEnd; id = sequence.at(id).parent) {
      impl_->LiveNode(sequence, id);
      if (std::exchange(sequence.at(id).marked, true)) break;
    }
  }
  impl_->Relink(handle);
}

// The deepest node that is an ancestor of, or equal to, every leaf; kPrefixEnd when there is none.
KvNode BlockManager::Impl::CommonNode(const KvSequence& sequence,
                                      absl::Span<const KvNode> leaves) const {
  KvNode common = leaves.empty() ? kPrefixEnd : leaves[0];
  for (KvNode leaf : leaves) {
    if (leaf != kPrefixEnd) LiveNode(sequence, leaf);
    while (common != leaf && common != kPrefixEnd) {
      if (leaf == kPrefixEnd) return kPrefixEnd;
      if (sequence.at(common).position >= sequence.at(leaf).position) {
        common = sequence.at(common).parent;
      } else {
        leaf = sequence.at(leaf).parent;
      }
    }
  }
  return common;
}

absl::StatusOr<int> BlockManager::Commit(SequenceHandle handle, absl::Span<const KvNode> leaves,
                                         std::vector<KvCopy>* copies) {
  KvSequence& sequence = impl_->Get(handle);
  const KvNode common = impl_->CommonNode(sequence, leaves);
  if (common == kPrefixEnd) return 0;
  const int moved = chain_length(handle, common);
  // Rows that are not planned yet are behind these tokens. Those of this round keep their pages
  // until it ends.
  const std::vector<int64_t> seen = impl_->FirstSeen(sequence.prefix_length + moved);
  const auto needed = impl_->NewPrefixBlocks(sequence, moved, seen);
  if (!impl_->pool.CanTake(needed)) return impl_->OutOfBlocks(handle, needed);
  impl_->Advance(&sequence, seen, /*now=*/false);

  std::vector<KvNode> chain(moved);
  int place = moved;
  for (KvNode id = common; id != kPrefixEnd; id = sequence.at(id).parent) chain[--place] = id;
  for (KvNode id : chain) {
    const TrieNode& node = sequence.at(id);
    const int32_t slot = impl_->PushPrefixToken(handle, node.token);
    impl_->AppendCopies(sequence, node.slot, slot, copies);
  }
  // Nodes that do not descend from the new prefix end are dead. Parents come first in `live`.
  for (KvNode id : sequence.live) {
    TrieNode& node = sequence.at(id);
    if (node.parent == common) {
      node.marked = true;
    } else if (node.parent != kPrefixEnd) {
      node.marked = sequence.at(node.parent).marked;
    }
  }
  for (KvNode id : sequence.live) {
    if (sequence.at(id).parent == common) sequence.at(id).parent = kPrefixEnd;
  }
  impl_->Relink(handle);
  return moved;
}

// Makes places and ids freed in this round available again. Runs without a live token return to the
// pool.
void BlockManager::Impl::SettleSlots() {
  for (auto [id, handle] : settling_blocks) {
    PoolBlock& block = pool.at(id);
    const int settled = std::popcount(std::exchange(block.settling, 0));
    if (block.use != BlockUse::kRun) continue;  // scratch, or its sequence was closed
    KvSequence& sequence = sequences[handle];
    sequence.run_places_used -= settled;
    if (block.live != 0) continue;
    std::erase(sequence.runs, id);
    pool.ReleaseNow(id);
  }
  settling_blocks.clear();
  for (SequenceHandle handle : settling_sequences) {
    KvSequence& sequence = sequences[handle];
    sequence.free_ids.insert(sequence.free_ids.end(), sequence.settling_ids.begin(),
                             sequence.settling_ids.end());
    sequence.settling_ids.clear();
  }
  settling_sequences.clear();
}

// Publishes the prefix blocks that became full in this round, in that order, so parents come first.
// A sequence closed in the meantime publishes nothing: the step that fills its blocks may not have
// run.
void BlockManager::Impl::PublishFilled() {
  for (const Filled& full : filled) {
    KvSequence& sequence = sequences[full.sequence];
    if (sequence.generation != full.generation) continue;
    const int32_t parent = full.index == 0 ? kCacheRoot : sequence.table[full.index - 1];
    sequence.table[full.index] =
        pool.Publish(parent, sequence.table[full.index], SeenAt(sequence, full.index));
  }
  filled.clear();
}

void BlockManager::EndRound() {
  impl_->SettleSlots();
  impl_->PublishFilled();
  if (impl_->paging().windowed() != 0) {
    for (KvSequence& sequence : impl_->sequences) {
      if (!sequence.open) continue;
      impl_->Advance(&sequence, impl_->FirstSeen(sequence.prefix_length), /*now=*/false);
    }
  }
  impl_->pool.SettleReleases();
}

std::vector<PageChange> BlockManager::TakePageChanges() {
  return impl_->pool.pages().TakeChanges();
}

BlockCounts BlockManager::counts() const {
  BlockCounts counts;
  const PagePool& pages = impl_->paging();
  if (pages.groups() == 0) {
    counts.total = impl_->pool.size() - 1;
    counts.cached = impl_->pool.cached_blocks();
    counts.free = impl_->pool.free_blocks();
  } else {
    counts.total = pages.size() - 1;
    counts.cached = pages.idle() + pages.whole() * impl_->pool.cached_blocks();
    counts.free = pages.free();
  }
  counts.used = counts.total - counts.cached - counts.free;
  return counts;
}

std::vector<int32_t> BlockManager::free_pages() const {
  return impl_->paging().groups() > 0 ? impl_->paging().free_pages() : impl_->pool.free_list();
}

int BlockManager::nodes(SequenceHandle handle) const {
  return static_cast<int>(impl_->Get(handle).live.size());
}
int64_t BlockManager::held(SequenceHandle handle) const {
  const KvSequence& sequence = impl_->Get(handle);
  const auto prefix = static_cast<int64_t>(sequence.table.size());
  const auto own = static_cast<int64_t>(sequence.scratch.size() + sequence.runs.size());
  if (sequence.first_seen.empty()) return prefix + own;
  int64_t pages = 0;
  for (const int64_t first : sequence.first_seen) pages += prefix - std::min(first, prefix) + own;
  return pages;
}
uint64_t BlockManager::cache_queries() const { return impl_->queries; }
uint64_t BlockManager::cache_hits() const { return impl_->hits; }

}  // namespace coppice::model
