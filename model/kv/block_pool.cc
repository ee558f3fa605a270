#include "model/kv/block_pool.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace coppice::model {

BlockPool::BlockPool(int64_t num_blocks, std::vector<int> windows, int64_t pages)
    : blocks_(std::max<int64_t>(num_blocks, 1)), pages_(std::move(windows), size(), pages) {
  blocks_[0].use = BlockUse::kSink;
  free_.reserve(blocks_.size());
  for (int64_t block = size() - 1; block > 0; --block) free_.push_back(static_cast<int32_t>(block));
}

int32_t BlockPool::Take(BlockUse use, GroupSet groups) {
  MakeRoom(std::popcount(groups));
  const int32_t block = free_.back();
  free_.pop_back();
  blocks_[block].use = use;
  blocks_[block].owners = 1;
  for (int group = 0; group < pages_.groups(); ++group) {
    if (groups >> group & 1) pages_.Give(block, group);
  }
  return block;
}

void BlockPool::MakeRoom(int64_t pages) {
  while (free_.empty() || pages_.free() < pages) {
    COPPICE_CHECK(oldest_ >= 0 || (!free_.empty() && pages_.idle() > 0));
    const bool page_first = pages_.idle() > 0 && !free_.empty() &&
                            (oldest_ < 0 || pages_.oldest_stamp() < blocks_[oldest_].release_stamp);
    if (page_first) {
      pages_.EvictOldest();
      continue;
    }
    const int32_t evicted = oldest_;
    UnlinkCached(evicted);
    Unpublish(evicted);
    FreeBlock(evicted);
  }
}

void BlockPool::FreeBlock(int32_t block) {
  blocks_[block].use = BlockUse::kFree;
  pages_.FreeAll(block);
  free_.push_back(block);
}

std::vector<int32_t> BlockPool::NextPages() {
  const int groups = pages_.groups();
  if (groups == 0) return {free_.empty() ? oldest_ : free_.back()};
  MakeRoom(groups);
  std::vector<int32_t> next;
  for (int group = 0; group < groups; ++group) next.push_back(pages_.Next(group));
  return next;
}

std::vector<int32_t> BlockPool::PagesOf(int32_t block) const {
  if (pages_.groups() == 0) return {block};
  std::vector<int32_t> pages;
  for (int group = 0; group < pages_.groups(); ++group) pages.push_back(pages_.page(block, group));
  return pages;
}

void BlockPool::Share(int32_t block) {
  PoolBlock& shared = blocks_[block];
  COPPICE_CHECK(shared.published);
  if (shared.use == BlockUse::kCached) UnlinkCached(block);
  shared.use = BlockUse::kPrefix;
  ++shared.owners;
}

void BlockPool::Release(int32_t block) {
  PoolBlock& released = blocks_[block];
  COPPICE_CHECK(released.owners > 0);
  if (--released.owners > 0) return;
  released.use = BlockUse::kReleased;
  released.live = released.settling = 0;
  released.release_stamp = ++stamp_;
  released_.emplace_back(block, stamp_);
}

void BlockPool::ReleaseNow(int32_t block) {
  PoolBlock& released = blocks_[block];
  COPPICE_CHECK(released.owners == 1 && !released.published);
  released.owners = 0;
  released.live = released.settling = 0;
  FreeBlock(block);
}

int32_t BlockPool::Find(int32_t parent, absl::Span<const TokenId> tokens) const {
  CacheKey key;
  key.first = parent;
  std::copy_n(tokens.begin(), kBlockSize, key.second.begin());
  auto found = cache_.find(key);
  return found == cache_.end() ? -1 : found->second;
}

BlockPool::Beginning BlockPool::FindBeginning(int32_t parent,
                                              absl::Span<const TokenId> tokens) const {
  if (tokens.empty()) return {};
  const auto found = last_.find({parent, tokens[0]});
  if (found == last_.end()) return {};
  const auto& held = blocks_[found->second].tokens;
  const auto [ours, theirs] = std::mismatch(tokens.begin(), tokens.end(), held.begin(), held.end());
  return {found->second, static_cast<int>(ours - tokens.begin())};
}

int32_t BlockPool::Publish(int32_t parent, int32_t block, GroupSet seen) {
  PoolBlock& full = blocks_[block];
  COPPICE_CHECK(parent == kCacheRoot || blocks_[parent].published);
  auto [entry, fresh] = cache_.try_emplace(CacheKey{parent, full.tokens}, block);
  if (!fresh) {
    const int32_t twin = entry->second;
    Share(twin);
    // What the twin lost because no sequence saw it any more, this one brings.
    for (int group = 0; group < pages_.groups(); ++group) {
      if ((seen >> group & 1) == 0) continue;
      if (pages_.page(twin, group) == 0) pages_.Move(block, twin, group);
      pages_.AddViewer(twin, group);
    }
    ReleaseNow(block);
    return twin;
  }
  last_[{parent, full.tokens[0]}] = block;
  // A page that the sequence gave back before the block was full lacks its last tokens.
  for (int group = 0; group < pages_.groups(); ++group) {
    if ((pages_.windowed() & ~seen) >> group & 1) pages_.FreeUnseen(block, group);
  }
  full.published = true;
  full.parent = parent;
  ++blocks_[parent].children;
  return block;
}

void BlockPool::SettleReleases() {
  for (auto [block, stamp] : released_) {
    PoolBlock& released = blocks_[block];
    if (released.use != BlockUse::kReleased || released.release_stamp != stamp) continue;
    if (released.published) {
      AppendCached(block);
    } else {
      FreeBlock(block);
    }
  }
  released_.clear();
  pages_.SettleDropped(++stamp_, [this](int32_t block) { return blocks_[block].published; });
}

void BlockPool::AppendCached(int32_t block) {
  PoolBlock& appended = blocks_[block];
  appended.use = BlockUse::kCached;
  appended.older = newest_;
  appended.newer = -1;
  (newest_ < 0 ? oldest_ : blocks_[newest_].newer) = block;
  newest_ = block;
  ++cached_;
}

void BlockPool::UnlinkCached(int32_t block) {
  PoolBlock& cached = blocks_[block];
  (cached.older < 0 ? oldest_ : blocks_[cached.older].newer) = cached.newer;
  (cached.newer < 0 ? newest_ : blocks_[cached.newer].older) = cached.older;
  cached.older = cached.newer = -1;
  --cached_;
}

void BlockPool::Unpublish(int32_t block) {
  PoolBlock& gone = blocks_[block];
  COPPICE_CHECK(gone.children == 0);
  cache_.erase(CacheKey{gone.parent, gone.tokens});
  const auto last = last_.find({gone.parent, gone.tokens[0]});
  if (last != last_.end() && last->second == block) last_.erase(last);
  --blocks_[gone.parent].children;
  gone.published = false;
  gone.parent = -1;
}

absl::Status BlockPool::CheckIntegrity(const std::vector<int32_t>& viewers) const {
  absl::Status status = CheckBlocks();
  if (!status.ok() || pages_.groups() == 0) return status;
  std::vector<bool> used, published;
  for (const PoolBlock& block : blocks_) {
    used.push_back(block.use != BlockUse::kFree && block.use != BlockUse::kSink);
    published.push_back(block.published);
  }
  return pages_.CheckIntegrity(viewers, used, published);
}

absl::Status BlockPool::CheckBlocks() const {
  auto bad = [](int64_t block, const char* what) {
    return absl::InternalError(absl::StrCat("block pool: block ", block, ": ", what));
  };
  std::vector<int32_t> children(blocks_.size(), 0);
  int64_t published = 0;
  for (int64_t i = 0; i < size(); ++i) {
    const PoolBlock& block = blocks_[i];
    if ((block.use == BlockUse::kSink) != (i == 0)) return bad(i, "the sink is block 0 alone");
    const bool owned = block.use == BlockUse::kPrefix || block.use == BlockUse::kScratch ||
                       block.use == BlockUse::kRun;
    if (owned != (block.owners > 0)) return bad(i, "owners do not match its use");
    if ((block.live & block.settling) != 0) return bad(i, "a place is both live and freed");
    if (block.use != BlockUse::kScratch && block.use != BlockUse::kRun &&
        (block.live | block.settling) != 0) {
      return bad(i, "live places outside scratch and runs");
    }
    if (block.owners > 1 && !block.published) return bad(i, "shared but not published");
    if (!block.published) {
      if (block.use == BlockUse::kCached) return bad(i, "cached but not published");
      continue;
    }
    ++published;
    ++children[block.parent];
    if (block.parent != kCacheRoot && !blocks_[block.parent].published) {
      return bad(i, "its parent left the cache first");
    }
    if (block.parent != kCacheRoot && blocks_[block.parent].owners < block.owners) {
      return bad(i, "has more owners than its parent");
    }
    if (Find(block.parent, block.tokens) != i) return bad(i, "the cache does not lead to it");
  }
  if (published != static_cast<int64_t>(cache_.size())) return bad(0, "cache has stray entries");
  for (const auto& [key, block] : last_) {
    const PoolBlock& last = blocks_[block];
    if (!last.published || key != std::pair(last.parent, last.tokens[0]))
      return bad(block, "found by a beginning that it does not have");
  }
  std::vector<bool> seen(blocks_.size(), false);
  for (int32_t block : free_) {
    if (blocks_[block].use != BlockUse::kFree || seen[block]) return bad(block, "bad free list");
    seen[block] = true;
  }
  int64_t cached = 0;
  for (int32_t block = oldest_, older = -1; block >= 0;
       older = block, block = blocks_[block].newer) {
    if (blocks_[block].use != BlockUse::kCached || seen[block] || blocks_[block].older != older) {
      return bad(block, "bad eviction order");
    }
    seen[block] = true;
    ++cached;
  }
  for (auto [block, stamp] : released_) seen[block] = true;
  for (int64_t i = 1; i < size(); ++i) {
    if (children[i] != blocks_[i].children) return bad(i, "wrong number of children");
    if (blocks_[i].owners == 0 && !seen[i]) return bad(i, "lost: in no list and without owner");
  }
  if (cached != cached_) return bad(0, "wrong number of cached blocks");
  return absl::OkStatus();
}

}  // namespace coppice::model
