#include "coordinator/request/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace coppice::coordinator {

std::string StopMatcher::Append(absl::string_view text) {
  if (matched_) return "";
  pending_.append(text.data(), text.size());
  size_t best_end = std::string::npos, best_begin = 0;
  for (const std::string& stop : stops_) {
    const size_t begin = pending_.find(stop);
    if (begin == std::string::npos) continue;
    const size_t end = begin + stop.size();
    if (end < best_end || (end == best_end && begin < best_begin)) {
      best_end = end;
      best_begin = begin;
    }
  }
  if (best_end != std::string::npos) {
    matched_ = pending_.substr(best_begin, best_end - best_begin);
    std::string shown = pending_.substr(0, include_ ? best_end : best_begin);
    pending_.clear();
    return shown;
  }
  const size_t settled = pending_.size() - HeldBack();
  std::string shown = pending_.substr(0, settled);
  pending_.erase(0, settled);
  return shown;
}

size_t StopMatcher::HeldBack() const {
  size_t held = 0;
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, pending_.size()); length > held; --length) {
      if (pending_.compare(pending_.size() - length, length, stop, 0, length) == 0) held = length;
    }
  }
  return held;
}

std::string StopMatcher::Finish() { return matched_ ? "" : std::exchange(pending_, std::string()); }

}  // namespace coppice::coordinator
