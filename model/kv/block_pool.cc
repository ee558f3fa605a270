#include "model/kv/block_pool.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace coppice::model {

BlockPool::BlockPool(int64_t num_blocks) : blocks_(std::max<int64_t>(num_blocks, 1)) {
  blocks_[0].use = BlockUse::kSink;
  free_.reserve(blocks_.size());
  for (int64_t block = size() - 1; block > 0; --block) free_.push_back(static_cast<int32_t>(block));
}

int32_t BlockPool::Take(BlockUse use) {
  COPPICE_CHECK(available() > 0);
  const int32_t block = Next();
  if (!free_.empty()) {
    free_.pop_back();
  } else {
    UnlinkCached(block);
    Unpublish(block);
  }
  blocks_[block].use = use;
  blocks_[block].owners = 1;
  return block;
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
  released.use = BlockUse::kFree;
  released.live = released.settling = 0;
  free_.push_back(block);
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

int32_t BlockPool::Publish(int32_t parent, int32_t block) {
  PoolBlock& full = blocks_[block];
  COPPICE_CHECK(parent == kCacheRoot || blocks_[parent].published);
  auto [entry, fresh] = cache_.try_emplace(CacheKey{parent, full.tokens}, block);
  if (!fresh) {
    const int32_t twin = entry->second;
    Share(twin);
    ReleaseNow(block);
    return twin;
  }
  last_[{parent, full.tokens[0]}] = block;
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
      released.use = BlockUse::kFree;
      free_.push_back(block);
    }
  }
  released_.clear();
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

absl::Status BlockPool::CheckIntegrity() const {
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
