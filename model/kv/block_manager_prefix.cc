// The stable prefix of a sequence: what it adopts from the prefix cache, and how it grows.
#include <algorithm>
#include <vector>

#include "model/kv/block_manager.h"
#include "model/kv/block_manager_impl.h"

namespace coppice::model {

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

// The published blocks of `prompt` after those of the sequence that it may adopt.
std::vector<int32_t> BlockManager::Impl::FindAdoptable(const KvSequence& sequence,
                                                       absl::Span<const TokenId> prompt) const {
  std::vector<int32_t> found;
  int32_t parent = PublishedEnd(sequence);
  if (!options.prefix_cache || parent < 0) return found;
  for (size_t begin = sequence.prefix_length; begin + kBlockSize < prompt.size();
       begin += kBlockSize) {
    parent = pool.Find(parent, prompt.subspan(begin, kBlockSize));
    if (parent < 0) break;
    found.push_back(parent);
  }
  found.resize(Adoptable(sequence, found));
  return found;
}

int64_t BlockManager::InUse(absl::Span<const TokenId> prompt) const {
  KvSequence none;
  none.first_seen.assign(impl_->paging().groups(), 0);
  const std::vector<int32_t> found = impl_->FindAdoptable(none, prompt);
  const PagePool& pages = impl_->paging();
  const auto owned = [&](int32_t block) { return impl_->pool.at(block).owners > 0; };
  if (pages.groups() == 0) return std::count_if(found.begin(), found.end(), owned);
  int64_t used = 0;
  for (int group = 0; group < pages.groups(); ++group) {
    const int64_t first = pages.FirstSeen(group, int64_t{kBlockSize} * found.size());
    used += std::count_if(found.begin() + first, found.end(), [&](int32_t block) {
      return pages.window(group) == 0 ? owned(block) : pages.viewers(block, group) > 0;
    });
  }
  return used;
}

int BlockManager::Adopt(SequenceHandle handle, absl::Span<const TokenId> prompt) {
  KvSequence& sequence = impl_->Get(handle);
  const int before = sequence.prefix_length;
  const std::vector<int32_t> found = impl_->FindAdoptable(sequence, prompt);
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

int BlockManager::MostAppended(SequenceHandle handle, int tokens) const {
  const KvSequence& sequence = impl_->Get(handle);
  const auto fits = [&](int count) {
    return impl_->pool.CanTake(impl_->NewPrefixBlocks(sequence, count, sequence.first_seen));
  };
  if (fits(tokens)) return tokens;
  int least = 0;  // which fits
  for (int most = tokens; most - least > 1;) {
    const int middle = least + (most - least) / 2;
    (fits(middle) ? least : most) = middle;
  }
  return least;
}

int BlockManager::prefix_length(SequenceHandle handle) const {
  return impl_->Get(handle).prefix_length;
}
absl::Span<const int32_t> BlockManager::block_table(SequenceHandle handle) const {
  return impl_->Get(handle).table;
}

}  // namespace coppice::model
