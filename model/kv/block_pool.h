// The blocks of one KV pool: use, reference counts, the prefix cache, deferred frees. Lower half of
// BlockManager, its only caller. Host-only, thread-compatible.
//
// The prefix cache is a radix tree in one hash map: (parent block, 16 tokens) -> block. A key holds
// the tokens themselves, and the parent block stands for everything before them. So equal keys mean
// equal prefixes, and a hash collision cannot mix up two prompts. A block stays in the map while it
// has owners, and afterwards until it is evicted, oldest release first. An owner of a block also
// owns its parent and releases the parent later, so a parent always outlives its children.
//
// In a model with windows a block has pages (page_pool.h), and what runs out is pages. A cached
// block without pages of windows still leads to those behind it. When a page is needed, the block
// or the idle page that has been unused for longest goes.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/types.h"
#include "kernels/backend.h"
#include "model/kv/page_pool.h"

namespace coppice::model {

// The parent of a first block. The number is the sink's, which holds no tokens.
inline constexpr int32_t kCacheRoot = 0;

enum class BlockUse : uint8_t { kSink, kFree, kPrefix, kScratch, kRun, kReleased, kCached };

struct PoolBlock {
  BlockUse use = BlockUse::kFree;
  bool published = false;                       // in the prefix cache
  uint16_t live = 0;                            // kScratch, kRun: places that hold a node
  uint16_t settling = 0;                        // kScratch, kRun: places freed in this round
  int32_t owners = 0;                           // number of sequences that own the block
  int32_t children = 0;                         // published blocks whose parent this is
  int32_t parent = -1;                          // published: block before it, or kCacheRoot
  int32_t older = -1, newer = -1;               // kCached: neighbours in the eviction order
  uint64_t release_stamp = 0;                   // stamp of the last release
  std::array<TokenId, kBlockSize> tokens = {};  // kPrefix: what the block holds
};

class BlockPool {
 public:
  // windows, pages: of the PagePool.
  BlockPool(int64_t num_blocks, std::vector<int> windows, int64_t pages);

  // What is taken from the pool.
  struct Amount {
    int64_t blocks = 0;
    int64_t pages = 0;  // of all these blocks; none where a block is its own page
  };
  // What Take() can hand out now.
  Amount available() const {
    return {free_blocks() + cached_, pages_.free() + pages_.idle() + pages_.whole() * cached_};
  }
  bool CanTake(const Amount& amount) const {
    return amount.blocks <= available().blocks && amount.pages <= available().pages;
  }
  Amount WholeBlock() const { return {1, pages_.groups()}; }
  // A block with one owner, with pages in these groups. Evicts the oldest of the cache if none is
  // free. Needs CanTake().
  int32_t Take(BlockUse use, GroupSet groups);
  int32_t Take(BlockUse use) { return Take(use, pages_.all()); }
  // The pages, one for each group, that Take() will hand out next; the block, if that is its own
  // page. May evict what Take() would. Needs CanTake(WholeBlock()).
  std::vector<int32_t> NextPages();
  // The pages of a block, one for each group, 0 where it has none; the block, if that is its own.
  std::vector<int32_t> PagesOf(int32_t block) const;
  // Adds an owner to a published block.
  void Share(int32_t block);
  // Removes an owner. A block without owners becomes cached or free at SettleReleases.
  void Release(int32_t block);
  // Frees a block at once. Only for a block that was never used or whose last token was freed in an
  // earlier round.
  void ReleaseNow(int32_t block);

  // The published block that holds `tokens` after `parent`, or -1.
  int32_t Find(int32_t parent, absl::Span<const TokenId> tokens) const;
  // The block published last after `parent` whose first token is that of `tokens`, and how many
  // tokens they share from there; {-1, 0} if there is none, or if it has been evicted.
  struct Beginning {
    int32_t block = -1;
    int tokens = 0;
  };
  Beginning FindBeginning(int32_t parent, absl::Span<const TokenId> tokens) const;
  // Publishes a full block and returns it. When an equal block is published already, releases this
  // one, makes the caller an owner of the other and returns that. seen: the groups with windows in
  // which the caller views the block.
  int32_t Publish(int32_t parent, int32_t block, GroupSet seen);
  void SettleReleases();

  PagePool& pages() { return pages_; }
  const PagePool& pages() const { return pages_; }
  PoolBlock& at(int32_t block) { return blocks_[block]; }
  const PoolBlock& at(int32_t block) const { return blocks_[block]; }
  int64_t size() const { return static_cast<int64_t>(blocks_.size()); }
  const std::vector<int32_t>& free_list() const { return free_; }
  int64_t free_blocks() const { return static_cast<int64_t>(free_.size()); }
  int64_t cached_blocks() const { return cached_; }

  // viewers: [blocks * groups], counted anew.
  absl::Status CheckIntegrity(const std::vector<int32_t>& viewers) const;

 private:
  using CacheKey = std::pair<int32_t, std::array<TokenId, kBlockSize>>;

  void AppendCached(int32_t block);
  void UnlinkCached(int32_t block);
  void Unpublish(int32_t block);
  void FreeBlock(int32_t block);
  // Evicts until a block and this many pages are free.
  void MakeRoom(int64_t pages);
  absl::Status CheckBlocks() const;

  std::vector<PoolBlock> blocks_;
  PagePool pages_;
  std::vector<int32_t> free_;
  std::vector<std::pair<int32_t, uint64_t>> released_;  // block, stamp of that release
  absl::flat_hash_map<CacheKey, int32_t> cache_;
  absl::flat_hash_map<std::pair<int32_t, TokenId>, int32_t>
      last_;  // (parent, first token) -> block
  int32_t oldest_ = -1, newest_ = -1;
  int64_t cached_ = 0;
  uint64_t stamp_ = 0;
};

}  // namespace coppice::model
