#include "coordinator/request/stop_matcher.h"

#include <utility>

namespace coppice::coordinator {

std::string StopMatcher::Append(absl::string_view text) {
  if (!searches_) return std::string(text);
  if (matched_) return "";
  for (const char byte : text) {
    pending_.push_back(byte);
    node_ = stops_.Next(node_, byte);
    const size_t length = stops_.matched(node_);
    if (length == 0) continue;
    const size_t end = pending_.size(), begin = end - length;
    matched_ = pending_.substr(begin);
    std::string shown = pending_.substr(0, include_ ? end : begin);
    pending_.clear();
    return shown;
  }
  const size_t settled = pending_.size() - stops_.begun(node_);
  std::string shown = pending_.substr(0, settled);
  pending_.erase(0, settled);
  return shown;
}

std::string StopMatcher::Finish() { return matched_ ? "" : std::exchange(pending_, std::string()); }

}  // namespace coppice::coordinator
