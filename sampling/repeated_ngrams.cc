#include "sampling/repeated_ngrams.h"

#include <algorithm>

#include "sampling/rng.h"

namespace coppice::sampling {

RepeatedNgrams::RepeatedNgrams(absl::Span<const TokenId> prompt, int size)
    : context_(size - 1), prompt_(prompt.begin(), prompt.end()) {
  for (size_t place = context_; place < prompt_.size(); ++place) {
    const uint64_t hash = HashPath(prompt.subspan(place - context_, context_));
    places_.emplace_back(hash, static_cast<uint32_t>(place));
  }
  std::sort(places_.begin(), places_.end());
}

std::vector<TokenId> RepeatedNgrams::After(absl::Span<const TokenId> path) const {
  std::vector<TokenId> tokens;
  const size_t length = prompt_.size() + path.size();
  if (length < context_) return tokens;
  std::vector<TokenId> last;  // the last tokens of prompt and path
  for (size_t place = length - context_; place < length; ++place) last.push_back(At(place, path));
  const auto follows = [&](size_t place) {
    for (size_t i = 0; i < context_; ++i) {
      if (At(place - context_ + i, path) != last[i]) return false;
    }
    return true;
  };
  const uint64_t hash = HashPath(last);
  auto found = std::lower_bound(places_.begin(), places_.end(), std::pair(hash, uint32_t{0}));
  for (; found != places_.end() && found->first == hash; ++found) {
    if (follows(found->second)) tokens.push_back(prompt_[found->second]);
  }
  for (size_t place = std::max(prompt_.size(), context_); place < length; ++place) {
    if (follows(place)) tokens.push_back(At(place, path));
  }
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

}  // namespace coppice::sampling
