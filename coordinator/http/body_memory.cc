#include "coordinator/http/body_memory.h"

#include <algorithm>
#include <utility>

namespace coppice::coordinator {

BodyMemory::Share::Share(std::shared_ptr<BodyMemory> memory, std::function<void()> give_up)
    : memory_(memory), give_up_(std::move(give_up)) {
  at_ = memory_->arriving_.insert(memory_->arriving_.end(), this);
}

BodyMemory::Share::~Share() {
  Arrived();
  memory_->held_ -= counted_;
}

void BodyMemory::Share::Arrived() {
  if (std::exchange(arriving_, false)) memory_->arriving_.erase(at_);
}

void BodyMemory::Share::Release() {
  Arrived();
  memory_->held_ -= std::exchange(counted_, 0);
}

bool BodyMemory::Share::Grow(size_t bytes) {
  const size_t count = bytes - std::min(bytes, kFree);
  memory_->held_ += count - counted_;
  counted_ = count;
  while (memory_->held_ > memory_->limit_) {
    // If several are equally large, takes the one that began first, because it is the slowest.
    const auto largest =
        std::max_element(memory_->arriving_.begin(), memory_->arriving_.end(),
                         [](const Share* a, const Share* b) { return a->counted_ < b->counted_; });
    Share* const share = *largest;
    share->Release();
    if (share == this) return false;
    share->give_up_();
  }
  return true;
}

}  // namespace coppice::coordinator
