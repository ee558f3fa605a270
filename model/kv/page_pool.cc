#include "model/kv/page_pool.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace coppice::model {

PagePool::PagePool(std::vector<int> windows, int64_t blocks, int64_t pages)
    : windows_(std::move(windows)), size_(pages), holds_(blocks * windows_.size()) {
  COPPICE_CHECK(windows_.size() <= kMostKvGroups);
  for (int group = 0; group < groups(); ++group) {
    if (windows_[group] > 0) {
      windowed_ |= GroupSet{1} << group;
    } else {
      ++whole_;
    }
  }
  if (groups() == 0) return;
  free_.reserve(pages);
  for (int64_t page = pages - 1; page > 0; --page) free_.push_back(static_cast<int32_t>(page));
}

void PagePool::Changed(int64_t index) {
  if (!std::exchange(holds_[index].changed, true)) changed_.push_back(index);
}

void PagePool::Give(int32_t block, int group) {
  Hold& hold = at(block, group);
  COPPICE_CHECK(!free_.empty() && hold.page == 0);
  hold.page = free_.back();
  free_.pop_back();
  Changed(Index(block, group));
}

void PagePool::Free(int32_t block, int group) {
  Hold& hold = at(block, group);
  if (hold.idle) Unlink(Index(block, group));
  hold.viewers = 0;
  if (hold.page == 0) return;
  free_.push_back(std::exchange(hold.page, 0));
  Changed(Index(block, group));
}

void PagePool::FreeUnseen(int32_t block, int group) {
  COPPICE_CHECK(at(block, group).viewers == 0);
  if (page(block, group) != 0) Free(block, group);
}

void PagePool::FreeAll(int32_t block) {
  for (int group = 0; group < groups(); ++group) Free(block, group);
}

void PagePool::Move(int32_t from, int32_t to, int group) {
  Hold& source = at(from, group);
  Hold& destination = at(to, group);
  COPPICE_CHECK(source.page != 0 && destination.page == 0);
  if (source.idle) Unlink(Index(from, group));
  destination.page = std::exchange(source.page, 0);
  source.viewers = 0;
  Changed(Index(from, group));
  Changed(Index(to, group));
}

void PagePool::AddViewer(int32_t block, int group) {
  Hold& hold = at(block, group);
  COPPICE_CHECK(hold.page != 0);
  if (hold.idle) Unlink(Index(block, group));
  ++hold.viewers;
}

void PagePool::DropViewer(int32_t block, int group, bool now) {
  Hold& hold = at(block, group);
  COPPICE_CHECK(hold.viewers > 0);
  if (--hold.viewers > 0) return;
  if (now) {
    MakeIdle(block, group, last_stamp_);
  } else {
    dropped_.emplace_back(block, group);
  }
}

void PagePool::MakeIdle(int32_t block, int group, uint64_t stamp) {
  const int64_t index = Index(block, group);
  Hold& hold = holds_[index];
  hold.idle = true;
  hold.stamp = last_stamp_ = stamp;
  hold.older = static_cast<int32_t>(newest_);
  hold.newer = -1;
  if (newest_ < 0) {
    oldest_ = index;
  } else {
    holds_[newest_].newer = static_cast<int32_t>(index);
  }
  newest_ = index;
  ++idle_;
  Changed(index);
}

void PagePool::Unlink(int64_t index) {
  Hold& hold = holds_[index];
  if (hold.older < 0) {
    oldest_ = hold.newer;
  } else {
    holds_[hold.older].newer = hold.newer;
  }
  if (hold.newer < 0) {
    newest_ = hold.older;
  } else {
    holds_[hold.newer].older = hold.older;
  }
  hold.older = hold.newer = -1;
  hold.idle = false;
  --idle_;
  Changed(index);
}

void PagePool::EvictOldest() {
  COPPICE_CHECK(oldest_ >= 0);
  Free(static_cast<int32_t>(oldest_ / groups()), static_cast<int>(oldest_ % groups()));
}

std::vector<PageChange> PagePool::TakeChanges() {
  std::vector<PageChange> changes;
  changes.reserve(changed_.size());
  for (const int64_t index : std::exchange(changed_, {})) {
    Hold& hold = holds_[index];
    hold.changed = false;
    changes.push_back({static_cast<int32_t>(index / groups()),
                       static_cast<int32_t>(index % groups()), hold.idle ? 0 : hold.page});
  }
  return changes;
}

absl::Status PagePool::CheckIntegrity(const std::vector<int32_t>& viewers,
                                      const std::vector<bool>& used,
                                      const std::vector<bool>& published) const {
  if (groups() == 0) return absl::OkStatus();
  auto bad = [&](int64_t index, const char* what) {
    return absl::InternalError(absl::StrCat("page pool: block ", index / groups(), ", group ",
                                            index % groups(), ": ", what));
  };
  std::vector<bool> seen(size_, false);
  std::vector<bool> dropped(holds_.size(), false);
  for (const auto& [block, group] : dropped_) dropped[Index(block, group)] = true;
  int64_t held = 0, idle = 0;
  for (int64_t index = 0; index < static_cast<int64_t>(holds_.size()); ++index) {
    const Hold& hold = holds_[index];
    const bool window = windows_[index % groups()] > 0;
    const int64_t block = index / groups();
    if (hold.viewers != viewers[index]) return bad(index, "wrong number of viewers");
    if (hold.viewers > 0 && (hold.page == 0 || hold.idle))
      return bad(index, "is seen without page");
    if (!used[block] && hold.page != 0) return bad(index, "a free block has a page");
    if (!window && used[block] && hold.page == 0) return bad(index, "has no page");
    idle += hold.idle;
    if (hold.page == 0) {
      if (hold.idle) return bad(index, "is idle without page");
      continue;
    }
    if (hold.page < 0 || hold.page >= size_ || seen[hold.page])
      return bad(index, "shares its page");
    seen[hold.page] = true;
    ++held;
    if (hold.idle && !published[block]) return bad(index, "is idle, but not in the cache");
    if (window && published[block] && hold.viewers == 0 && !hold.idle && !dropped[index])
      return bad(index, "is neither seen nor idle");
  }
  for (const int32_t page : free_) {
    if (seen[page]) return bad(0, "a page is both free and in use");
    seen[page] = true;
  }
  if (held + free() != size_ - 1) return bad(0, "pages were lost");
  int64_t listed = 0;
  for (int64_t index = oldest_, older = -1; index >= 0;
       older = index, index = holds_[index].newer) {
    if (!holds_[index].idle || holds_[index].older != older || ++listed > idle)
      return bad(index, "bad order of eviction");
  }
  if (idle != idle_ || listed != idle_) return bad(0, "wrong number of idle pages");
  return absl::OkStatus();
}

}  // namespace coppice::model
