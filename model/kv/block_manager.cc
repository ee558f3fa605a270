#include "model/kv/block_manager.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "model/kv/block_manager_impl.h"

namespace coppice::model {

BlockManager::BlockManager(const BlockManagerOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}
BlockManager::~BlockManager() = default;

SequenceHandle BlockManager::Open(absl::Span<const TokenId> prompt, int* cached_tokens) {
  SequenceHandle handle;
  if (impl_->free_handles.empty()) {
    handle = static_cast<SequenceHandle>(impl_->sequences.size());
    impl_->sequences.emplace_back();
  } else {
    handle = impl_->free_handles.back();
    impl_->free_handles.pop_back();
  }
  KvSequence& sequence = impl_->sequences[handle];
  sequence.open = true;
  sequence.generation = ++impl_->generations;
  sequence.first_seen.assign(impl_->paging().groups(), 0);
  if (impl_->options.prefix_cache) impl_->queries += prompt.size();
  const int adopted = Adopt(handle, prompt);
  if (cached_tokens != nullptr) *cached_tokens = adopted;
  return handle;
}

int32_t BlockManager::Impl::PublishedEnd(const KvSequence& sequence) const {
  if (sequence.table.empty()) return kCacheRoot;
  const int32_t end = sequence.table.back();
  return pool.at(end).published ? end : -1;
}

int BlockManager::Adopt(SequenceHandle handle, absl::Span<const TokenId> prompt) {
  KvSequence& sequence = impl_->Get(handle);
  const int before = sequence.prefix_length;
  if (!impl_->options.prefix_cache) return 0;
  int32_t parent = impl_->PublishedEnd(sequence);
  if (parent < 0) return 0;
  std::vector<int32_t> found;
  for (size_t begin = before; begin + kBlockSize < prompt.size(); begin += kBlockSize) {
    parent = impl_->pool.Find(parent, prompt.subspan(begin, kBlockSize));
    if (parent < 0) break;
    found.push_back(parent);
  }
  found.resize(impl_->Adoptable(sequence, found));
  if (found.empty()) return 0;
  sequence.prefix_length += static_cast<int>(found.size()) * kBlockSize;
  impl_->Advance(&sequence, impl_->FirstSeen(sequence.prefix_length), /*now=*/true);
  for (int32_t block : found) {
    impl_->pool.Share(block);
    impl_->AddViews(sequence, static_cast<int64_t>(sequence.table.size()), block);
    sequence.table.push_back(block);
  }
  const int adopted = sequence.prefix_length - before;
  impl_->hits += adopted;
  return adopted;
}

// As many as end where every block that the next row sees has its pages.
size_t BlockManager::Impl::Adoptable(const KvSequence& sequence,
                                     absl::Span<const int32_t> found) const {
  const int groups = paging().groups();
  if (groups == 0) return found.size();
  const auto begin = static_cast<int64_t>(sequence.table.size());
  std::vector<int64_t> behind_gap(groups, 0);  // the block behind the last one without a page
  size_t adoptable = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const int64_t end = begin + static_cast<int64_t>(i) + 1;
    bool all = true;
    for (int group = 0; group < groups; ++group) {
      if (paging().page(found[i], group) == 0) behind_gap[group] = end;
      all &= paging().FirstSeen(group, end * kBlockSize) >= behind_gap[group];
    }
    if (all) adoptable = i + 1;
  }
  return adoptable;
}

void BlockManager::Impl::Advance(KvSequence* sequence, const std::vector<int64_t>& first_seen,
                                 bool now) {
  const auto blocks = static_cast<int64_t>(sequence->table.size());
  for (int group = 0; group < paging().groups(); ++group) {
    if ((paging().windowed() >> group & 1) == 0) continue;
    int64_t& first = sequence->first_seen[group];
    for (; first < std::min(first_seen[group], blocks); ++first)
      pool.pages().DropViewer(sequence->table[first], group, now);
    first = first_seen[group];
  }
}

void BlockManager::Impl::AddViews(const KvSequence& sequence, int64_t index, int32_t block) {
  const GroupSet seen = SeenAt(sequence, index);
  for (int group = 0; group < paging().groups(); ++group) {
    if (seen >> group & 1) pool.pages().AddViewer(block, group);
  }
}

void BlockManager::Impl::AppendCopies(const KvSequence& sequence, int32_t source,
                                      int32_t destination, std::vector<KvCopy>* copies) const {
  if (paging().groups() == 0) {
    copies->push_back({source, destination});
    return;
  }
  const auto index = static_cast<int64_t>(sequence.table.size()) - 1;
  for (int group = 0; group < paging().groups(); ++group) {
    if (index < sequence.first_seen[group]) continue;  // no row to come sees it
    const auto slot_of = [&](int32_t slot) {
      return paging().page(slot / kBlockSize, group) * kBlockSize + slot % kBlockSize;
    };
    copies->push_back({slot_of(source), slot_of(destination)});
  }
}

// The source needs no owner: if its block or a page of it is handed out again, the forward pass
// writes there after the copies.
int BlockManager::AdoptBeginning(SequenceHandle handle, absl::Span<const TokenId> prompt,
                                 std::vector<KvCopy>* copies) {
  KvSequence& sequence = impl_->Get(handle);
  if (!impl_->options.prefix_cache || !sequence.live.empty()) return 0;
  const int32_t parent = impl_->PublishedEnd(sequence);
  if (parent < 0 || sequence.prefix_length + 1 >= static_cast<int>(prompt.size())) return 0;
  const auto rest = prompt.first(prompt.size() - 1).subspan(sequence.prefix_length);
  const auto [source, count] = impl_->pool.FindBeginning(parent, rest);
  if (count < kLeastCopied || !impl_->pool.CanTake(impl_->pool.WholeBlock())) return 0;
  const std::vector<int32_t> taken = impl_->pool.NextPages();
  if (!impl_->pool.at(source).published) return 0;  // room was made of it
  const std::vector<int32_t> read = impl_->pool.PagesOf(source);
  const auto has = [](const std::vector<int32_t>& pages, int32_t slot) {
    return std::find(pages.begin(), pages.end(), slot / kBlockSize) != pages.end();
  };
  // The copies of a step run in any order, so none may write what another reads.
  const bool in_use = std::any_of(copies->begin(), copies->end(), [&](const KvCopy& copy) {
    return has(taken, copy.source) || has(taken, copy.destination) || has(read, copy.destination);
  });
  if (in_use || taken == read || has(read, /*slot=*/0)) return 0;  // 0: it has lost pages
  for (int place = 0; place < count; ++place) {
    const int32_t slot = impl_->PushPrefixToken(handle, rest[place]);
    impl_->AppendCopies(sequence, source * kBlockSize + place, slot, copies);
  }
  impl_->hits += count;
  return count;
}

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

int32_t BlockManager::Impl::PushPrefixToken(SequenceHandle handle, TokenId token) {
  KvSequence& sequence = sequences[handle];
  const int place = sequence.prefix_length % kBlockSize;
  if (place == 0) {
    const auto index = static_cast<int64_t>(sequence.table.size());
    const GroupSet whole = paging().all() & ~paging().windowed();
    const int32_t taken = pool.Take(BlockUse::kPrefix, whole | SeenAt(sequence, index));
    AddViews(sequence, index, taken);
    sequence.table.push_back(taken);
  }
  const int32_t block = sequence.table.back();
  pool.at(block).tokens[place] = token;
  ++sequence.prefix_length;
  if (place == kBlockSize - 1 && options.prefix_cache) {
    filled.push_back({handle, sequence.generation, static_cast<int>(sequence.table.size()) - 1});
  }
  return block * kBlockSize + place;
}

absl::StatusOr<std::vector<int32_t>> BlockManager::AppendPrefix(SequenceHandle handle,
                                                                absl::Span<const TokenId> tokens) {
  KvSequence& sequence = impl_->Get(handle);
  COPPICE_CHECK_MSG(sequence.live.empty(), "the prefix cannot grow below live nodes; use Commit");
  // The rows of these tokens see what the sequence sees now, and each other.
  const auto needed = impl_->NewPrefixBlocks(sequence, tokens.size(), sequence.first_seen);
  if (!impl_->pool.CanTake(needed)) return impl_->OutOfBlocks(handle, needed);
  std::vector<int32_t> slots;
  slots.reserve(tokens.size());
  for (TokenId token : tokens) slots.push_back(impl_->PushPrefixToken(handle, token));
  return slots;
}

int BlockManager::prefix_length(SequenceHandle handle) const {
  return impl_->Get(handle).prefix_length;
}
absl::Span<const int32_t> BlockManager::block_table(SequenceHandle handle) const {
  return impl_->Get(handle).table;
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
uint64_t BlockManager::cache_queries() const { return impl_->queries; }
uint64_t BlockManager::cache_hits() const { return impl_->hits; }

}  // namespace coppice::model
