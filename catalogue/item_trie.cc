#include "catalogue/item_trie.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace coppice::catalogue {
namespace {

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("the trie is damaged: ", what));
}

}  // namespace

absl::StatusOr<ItemTrie> ItemTrie::Make(std::vector<Node> nodes, std::vector<uint64_t> ends,
                                        int vocab_size, ItemEnd end) {
  ItemTrie trie;
  trie.nodes_ = std::move(nodes);
  trie.ends_ = std::move(ends);
  if (trie.nodes_.size() < 3 || trie.nodes_.size() > size_t{INT32_MAX} ||
      trie.ends_.size() != (trie.nodes_.size() - 1 + 63) / 64) {
    return Bad(absl::StrCat(trie.nodes_.size(), " nodes, ", trie.ends_.size(), " words of ends"));
  }
  COPPICE_RETURN_IF_ERROR(trie.Check(vocab_size, end));
  trie.ends_.resize(trie.size() / 64 + 1);  // so that ItemsBefore(size()) has its word
  trie.ranks_.reserve(trie.ends_.size() + 1);
  trie.ranks_.push_back(0);
  for (const uint64_t word : trie.ends_)
    trie.ranks_.push_back(trie.ranks_.back() + std::popcount(word));
  return trie;
}

absl::Status ItemTrie::Check(int vocab_size, ItemEnd end) {
  const int64_t n = size();
  if (nodes_[0].first_child != 1 || nodes_[n].first_child != n || IsItem(kRoot) ||
      (n % 64 != 0 && ends_.back() >> (n % 64) != 0)) {
    return Bad("its root");
  }
  followed_.resize(vocab_size);
  used_.resize(vocab_size);
  for (int64_t i = 0; i < n; ++i) {
    const Node& node = nodes_[i];
    const int64_t begin = node.first_child, past = nodes_[i + 1].first_child;
    if (begin <= i || past < begin || past > n)
      return Bad(absl::StrCat("the children of node ", i));
    for (int64_t child = begin; child < past; ++child) {
      const bool ascends = child == begin || nodes_[child - 1].token < nodes_[child].token;
      if (!ascends || nodes_[child].token >= static_cast<uint32_t>(vocab_size))
        return Bad(absl::StrCat("the token of node ", child));
    }
    const bool inner = begin < past, item = IsItem(static_cast<Place>(i));
    if (inner ? item && end == ItemEnd::kNone : !item)
      return Bad(absl::StrCat("the end of an item at node ", i));
    if (i == 0) continue;
    used_[node.token] = true;
    if (inner || end == ItemEnd::kStop) followed_[node.token] = true;
  }
  level_begin_ = {0, 1};
  while (level_begin_.back() < n) {
    if (level_begin_.size() > kMostTokens + 1) return Bad("an item has too many tokens");
    level_begin_.push_back(ChildrenBegin(level_begin_.back()));
  }
  return absl::OkStatus();
}

ItemTrie::Place ItemTrie::Child(Place node, TokenId token) const {
  if (token < 0) return kNowhere;
  const auto begin = nodes_.begin() + ChildrenBegin(node), end = nodes_.begin() + ChildrenEnd(node);
  const auto found =
      std::lower_bound(begin, end, static_cast<uint32_t>(token),
                       [](const Node& child, uint32_t wanted) { return child.token < wanted; });
  if (found == end || found->token != static_cast<uint32_t>(token)) return kNowhere;
  return static_cast<Place>(found - nodes_.begin());
}

ItemTrie::Place ItemTrie::Find(absl::Span<const TokenId> tokens) const {
  Place node = kRoot;
  for (size_t i = 0; i < tokens.size() && node != kNowhere; ++i) node = Child(node, tokens[i]);
  return node;
}

// The last node whose children begin at `node` or before.
ItemTrie::Place ItemTrie::Parent(Place node) const {
  const auto after = std::upper_bound(
      nodes_.begin(), nodes_.begin() + node, static_cast<uint32_t>(node),
      [](uint32_t wanted, const Node& other) { return wanted < other.first_child; });
  return static_cast<Place>(after - nodes_.begin()) - 1;
}

std::vector<TokenId> ItemTrie::Path(Place node) const {
  std::vector<TokenId> tokens;
  for (; node != kRoot; node = Parent(node)) tokens.push_back(token(node));
  std::reverse(tokens.begin(), tokens.end());
  return tokens;
}

ItemTrie::Place ItemTrie::PlaceOf(int64_t item) const {
  const auto after = std::upper_bound(ranks_.begin(), ranks_.end(), item);
  const auto word = after - ranks_.begin() - 1;
  uint64_t left = ends_[word];
  for (int64_t skip = item - ranks_[word]; skip > 0; --skip) left &= left - 1;
  return static_cast<Place>(word * 64 + std::countr_zero(left));
}

}  // namespace coppice::catalogue
