#include "decoding/suffix_index.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace coppice::decoding {
namespace {

constexpr size_t kFewestSlots = 256;

uint64_t Mix(uint64_t hash, TokenId token) {
  return (hash ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15;
}

int64_t SlotOfHash(uint64_t hash, size_t slots) {
  return static_cast<int64_t>((hash ^ hash >> 29) * 0xbf58476d1ce4e5b9 >> 20 & (slots - 1));
}

}  // namespace

SuffixIndex::SuffixIndex(absl::Span<const TokenId> prompt, int most_tokens)
    : most_tokens_(most_tokens) {
  COPPICE_CHECK(!prompt.empty() && most_tokens >= 2);
  prompt.remove_prefix(prompt.size() - std::min<size_t>(prompt.size(), most_tokens / 2));
  nodes_.reserve(prompt.size() + prompt.size() / 4);
  for (auto& heads : heads_) heads.assign(std::max(kFewestSlots, std::bit_ceil(prompt.size())), -1);
  for (const TokenId token : prompt) Append(token, size() - 1);
  root_ = size() - 1;
}

void SuffixIndex::Add(const PathTree& paths) {
  for (int path = size() - root_; path < paths.size() && size() < most_tokens_; ++path) {
    const PathId id{path};
    Append(paths.token(id), root_ + Index(paths.parent(id)));
  }
}

void SuffixIndex::Append(TokenId token, int32_t parent) {
  const int32_t node = size();
  nodes_.push_back({token, parent});
  if (parent < 0) return;
  const bool first = nodes_[parent].child < 0;
  nodes_[node].sibling = nodes_[parent].child;
  nodes_[parent].child = node;
  if (!first) return;  // the parent is in its chains already
  if (nodes_.size() > heads_[0].size()) return Rehash();
  for (int order = 0; order < kOrders; ++order) Chain(parent, order);
}

void SuffixIndex::Chain(int32_t node, int order) {
  const int64_t slot = SlotOf(node, order);
  if (slot < 0) return;
  nodes_[node].before[order] = heads_[order][slot];
  heads_[order][slot] = node;
}

// A node is in its chains from its first child on, so the last node of a chain is not always the
// youngest. After a rehash it is.
void SuffixIndex::Rehash() {
  for (int order = 0; order < kOrders; ++order) {
    heads_[order].assign(2 * heads_[order].size(), -1);
    for (int32_t node = 0; node < size(); ++node) {
      if (nodes_[node].child >= 0) Chain(node, order);
    }
  }
}

int64_t SuffixIndex::SlotOf(int32_t node, int order) const {
  uint64_t hash = 0;
  for (int i = 0; i < kTokensOf[order]; ++i) {
    if (node < 0) return -1;
    hash = Mix(hash, nodes_[node].token);
    node = nodes_[node].parent;
  }
  return SlotOfHash(hash, heads_[order].size());
}

int64_t SuffixIndex::SlotOf(absl::Span<const TokenId> text, int order) const {
  if (text.size() < kTokensOf[order]) return -1;
  uint64_t hash = 0;
  for (int i = 0; i < kTokensOf[order]; ++i) hash = Mix(hash, text[text.size() - 1 - i]);
  return SlotOfHash(hash, heads_[order].size());
}

std::vector<SuffixIndex::Match> SuffixIndex::Find(absl::Span<const TokenId> text) const {
  std::vector<Match> matches;
  for (int order = 0; order < kOrders && matches.empty(); ++order) {
    const int64_t slot = SlotOf(text, order);
    if (slot < 0) continue;
    int tried = 0;
    for (int32_t node = heads_[order][slot]; node >= 0 && tried < kMostMatches;
         node = nodes_[node].before[order], ++tried) {
      const int most = static_cast<int>(std::min<size_t>(text.size(), kLongest));
      int length = 0;
      for (int32_t at = node; at >= 0 && length < most; at = nodes_[at].parent, ++length) {
        if (nodes_[at].token != text[text.size() - 1 - length]) break;
      }
      if (length >= kTokensOf[order]) matches.push_back({node, length});
    }
  }
  return matches;
}

size_t SuffixIndex::bytes() const {
  return nodes_.capacity() * sizeof(Node) +
         (heads_[0].capacity() + heads_[1].capacity()) * sizeof(int32_t);
}

}  // namespace coppice::decoding
