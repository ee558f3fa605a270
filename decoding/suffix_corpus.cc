#include "decoding/suffix_corpus.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace coppice::decoding {

SuffixCorpus::SuffixCorpus(std::vector<TokenId> tokens, const std::function<void()>& on_progress)
    : tokens_(std::move(tokens)) {
  COPPICE_CHECK(tokens_.size() < std::numeric_limits<int32_t>::max());
  COPPICE_CHECK(tokens_.empty() || tokens_.back() == kEnd);
  order_.resize(tokens_.size());
  std::iota(order_.begin(), order_.end(), 0);
  const auto window = [this](int32_t place) {
    const auto begin = tokens_.begin() + place;
    return std::pair(begin, begin + std::min<size_t>(kLongest, tokens_.size() - place));
  };
  constexpr uint64_t kPart = 1 << 20;
  uint64_t comparisons = 0;
  std::sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) {
    if (++comparisons % kPart == 0 && on_progress) on_progress();
    const auto [a_begin, a_end] = window(a);
    const auto [b_begin, b_end] = window(b);
    const auto order = std::lexicographical_compare_three_way(a_begin, a_end, b_begin, b_end);
    return order != 0 ? order < 0 : a < b;
  });
}

int SuffixCorpus::Compare(int32_t place, absl::Span<const TokenId> pattern) const {
  const size_t tokens = std::min(pattern.size(), tokens_.size() - place);
  for (size_t i = 0; i < tokens; ++i) {
    if (tokens_[place + i] != pattern[i]) return tokens_[place + i] < pattern[i] ? -1 : 1;
  }
  return tokens == pattern.size() ? 0 : -1;
}

SuffixCorpus::Range SuffixCorpus::Where(absl::Span<const TokenId> pattern) const {
  const auto begin = std::partition_point(
      order_.begin(), order_.end(), [&](int32_t place) { return Compare(place, pattern) < 0; });
  const auto end = std::partition_point(
      begin, order_.end(), [&](int32_t place) { return Compare(place, pattern) == 0; });
  return {static_cast<size_t>(begin - order_.begin()), static_cast<size_t>(end - order_.begin())};
}

// If a pattern occurs, so does its end: the longest one that occurs is found by bisection.
SuffixCorpus::Matches SuffixCorpus::Find(absl::Span<const TokenId> text) const {
  Matches matches;
  Range range{0, 0};
  int occurs = kShortest - 1,
      beyond = 1 + static_cast<int>(std::min<size_t>(text.size(), kLongest));
  while (beyond - occurs > 1) {
    const int length = (occurs + beyond) / 2;
    const Range found = Where(text.last(length));
    if (found.begin == found.end) {
      beyond = length;
    } else {
      range = found;
      matches.length = occurs = length;
    }
  }
  const size_t count = range.end - range.begin;
  const size_t kept = std::min<size_t>(count, kMostMatches);
  for (size_t i = 0; i < kept; ++i)
    matches.places.push_back(order_[range.begin + i * count / kept] + matches.length - 1);
  return matches;
}

}  // namespace coppice::decoding
