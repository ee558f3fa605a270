// The pages of the KV pool of a model with windows. The layers are divided into groups
// (model/kv_layout.h); a page has the 16 slots of a block for the layers of one group, and a block
// has at most one page in each group. In a group with a window a page is needed as long as a
// sequence sees its block: as long as it has a *viewer*. Without one it is *idle*: the prefix cache
// may still use it, but it is handed out again when no page is free, least recently seen first.
// Owned by BlockPool. Host-only, thread-compatible.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "plan/step_plan.h"

namespace coppice::model {

// A set of groups: bit g is group g.
using GroupSet = uint32_t;

class PagePool {
 public:
  // windows: [groups], 0: the layers see everything. Empty: a block is its own page, and this has
  // no pages. pages: with page 0, the sink's.
  PagePool(std::vector<int> windows, int64_t blocks, int64_t pages);

  int groups() const { return static_cast<int>(windows_.size()); }
  GroupSet all() const { return (GroupSet{1} << windows_.size()) - 1; }
  // The groups with a window, and how many the others are.
  GroupSet windowed() const { return windowed_; }
  int whole() const { return whole_; }
  int window(int group) const { return windows_[group]; }
  // The first block of a sequence that rows from position `length` on see in the group.
  int64_t FirstSeen(int group, int64_t length) const {
    const int window = windows_[group];
    return window == 0 || length < window ? 0 : (length - window + 1) / kBlockSize;
  }

  int64_t size() const { return size_; }
  int64_t free() const { return static_cast<int64_t>(free_.size()); }
  const std::vector<int32_t>& free_pages() const { return free_; }
  int64_t idle() const { return idle_; }

  // 0: none. Idle pages count.
  int32_t page(int32_t block, int group) const { return at(block, group).page; }
  int viewers(int32_t block, int group) const { return at(block, group).viewers; }
  // The page that Give will give after `ahead` others.
  int32_t Next(int ahead) const { return free_[free_.size() - 1 - ahead]; }
  // Gives the block a page in the group, where it has none. Needs free() > 0.
  void Give(int32_t block, int group);
  // Frees the page of a block in the group, if it has one. Nobody sees it.
  void FreeUnseen(int32_t block, int group);
  // Frees all pages of a block.
  void FreeAll(int32_t block);
  // The page that `from` has in the group goes to `to`, which has none.
  void Move(int32_t from, int32_t to, int group);

  // Of groups with windows alone. A page without viewers is idle from SettleDropped on, or now.
  void AddViewer(int32_t block, int group);
  void DropViewer(int32_t block, int group, bool now = false);
  // keeps(block): whether the prefix cache may use its pages; else they are freed. stamp: counts
  // releases of the pool.
  template <class Keeps>
  void SettleDropped(uint64_t stamp, Keeps keeps) {
    for (const auto& [block, group] : std::exchange(dropped_, {})) {
      const Hold& hold = at(block, group);
      if (hold.page == 0 || hold.viewers > 0 || hold.idle) continue;
      if (keeps(block)) {
        MakeIdle(block, group, stamp);
      } else {
        Free(block, group);
      }
    }
  }
  // The stamp of the page that became idle first, and what frees it. Needs idle() > 0.
  uint64_t oldest_stamp() const { return holds_[oldest_].stamp; }
  void EvictOldest();

  // What ranks must know of: what has changed since the last call. An idle page is none to them.
  std::vector<PageChange> TakeChanges();

  // viewers: [blocks * groups], counted anew. used: [blocks] has an owner or is cached. published:
  // [blocks].
  absl::Status CheckIntegrity(const std::vector<int32_t>& viewers, const std::vector<bool>& used,
                              const std::vector<bool>& published) const;

 private:
  // What a block has in a group.
  struct Hold {
    int32_t page = 0;
    int32_t viewers = 0;
    bool idle = false, changed = false;
    int32_t older = -1, newer = -1;  // idle: neighbours in the order of eviction
    uint64_t stamp = 0;
  };

  int64_t Index(int32_t block, int group) const { return int64_t{block} * groups() + group; }
  Hold& at(int32_t block, int group) { return holds_[Index(block, group)]; }
  const Hold& at(int32_t block, int group) const { return holds_[Index(block, group)]; }
  void Changed(int64_t index);
  void MakeIdle(int32_t block, int group, uint64_t stamp);
  void Unlink(int64_t index);
  void Free(int32_t block, int group);

  const std::vector<int> windows_;
  const int64_t size_;
  GroupSet windowed_ = 0;
  int whole_ = 0;
  std::vector<Hold> holds_;  // [blocks][groups]
  std::vector<int32_t> free_;
  std::vector<std::pair<int32_t, int>> dropped_;  // lost their last viewer in this round
  std::vector<int64_t> changed_;                  // indices of holds
  int64_t oldest_ = -1, newest_ = -1, idle_ = 0;
  uint64_t last_stamp_ = 0;
};

}  // namespace coppice::model
