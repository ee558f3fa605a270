// A format by its definition: the text is one of some token sequences, of which none begins another
// one. Its last token completes it. For tests of decoders.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/output_format.h"

namespace coppice::test {

class ItemFormat : public OutputFormat {
 public:
  explicit ItemFormat(std::vector<std::vector<TokenId>> items) : items_(std::move(items)) {
    std::sort(items_.begin(), items_.end());
    for (const std::vector<TokenId>& item : items_) {
      for (size_t length = 0; length <= item.size(); ++length) {
        const std::vector<TokenId> path(item.begin(), item.begin() + length);
        if (state_of_.emplace(path, static_cast<State>(paths_.size())).second)
          paths_.push_back(path);
      }
    }
  }

  const std::vector<std::vector<TokenId>>& items() const { return items_; }
  bool Has(absl::Span<const TokenId> tokens) const {
    return std::binary_search(items_.begin(), items_.end(),
                              std::vector<TokenId>(tokens.begin(), tokens.end()));
  }

  State Start() const override { return state_of_.at({}); }
  State Next(State state, TokenId token) const override {
    if (state == kBroken) return kBroken;
    std::vector<TokenId> path = paths_[state];
    path.push_back(token);
    const auto found = state_of_.find(path);
    return found == state_of_.end() ? kBroken : found->second;
  }
  std::shared_ptr<const AllowedTokens> Allowed(State state) const override {
    if (state == kBroken) return nullptr;
    auto allowed = std::make_shared<AllowedTokens>();
    const size_t length = paths_[state].size();
    for (const auto& [path, child] : state_of_) {
      if (path.size() == length + 1 &&
          std::equal(paths_[state].begin(), paths_[state].end(), path.begin()))
        allowed->listed.push_back(path.back());
    }
    allowed->count = static_cast<int>(allowed->listed.size());
    return allowed;
  }
  bool CutShort(State) const override { return false; }
  bool Complete(State state) const override { return state != kBroken && Has(paths_[state]); }
  bool has_complete_states() const override { return true; }

 private:
  std::vector<std::vector<TokenId>> items_;  // ascending
  std::map<std::vector<TokenId>, State> state_of_;
  std::vector<std::vector<TokenId>> paths_;  // [states]
};

}  // namespace coppice::test
