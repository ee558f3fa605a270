// The merge loop of both kinds of byte-pair encoding. Merges the adjacent pair of lowest priority,
// the leftmost on ties, until no pair merges. Heap over a linked list, O(n log n). Pure function.
// Source: Sennrich et al., https://arxiv.org/abs/1508.07909, algorithm 1 with ranked merges.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "base/types.h"

namespace coppice::tokenizer {

struct BpeSymbol {
  int32_t begin = 0;                 // bytes into the word
  int32_t length = 0;                // bytes; 0 once merged into its left neighbour
  TokenId id = -1;                   // -1 = not in the vocabulary
  bool frozen = false;               // takes part in no merge
  int32_t previous = -1, next = -1;  // indices, -1 = none
};

template <typename Priority>
struct BpeMerge {
  Priority priority{};
  TokenId id = -1;  // -1 = the pair does not merge
};

// symbols: adjacent, in text order. find(left, right) -> BpeMerge<Priority>. Returns the remaining
// symbols in order.
template <typename Priority, typename Find>
std::vector<BpeSymbol> MergeSymbols(std::vector<BpeSymbol> symbols, const Find& find) {
  struct Candidate {
    Priority priority;
    int32_t left, right;
    int32_t length;  // of the merged symbol; if it differs, one side has changed
    TokenId id;
    bool operator<(
        const Candidate& other) const {  // for a max-heap, so the lowest priority is the greatest
      return other.priority < priority || (!(priority < other.priority) && other.left < left);
    }
  };
  std::priority_queue<Candidate> heap;
  const auto consider = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0 || symbols[left].frozen || symbols[right].frozen) return;
    const BpeMerge<Priority> merge = find(symbols[left], symbols[right]);
    if (merge.id < 0) return;
    heap.push(
        {merge.priority, left, right, symbols[left].length + symbols[right].length, merge.id});
  };
  const int32_t count = static_cast<int32_t>(symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols[i].previous = i - 1;
    symbols[i].next = i + 1 < count ? i + 1 : -1;
  }
  for (int32_t i = 0; i + 1 < count; ++i) consider(i, i + 1);
  while (!heap.empty()) {
    const Candidate best = heap.top();
    heap.pop();
    BpeSymbol& left = symbols[best.left];
    BpeSymbol& right = symbols[best.right];
    if (left.length == 0 || right.length == 0 || left.length + right.length != best.length)
      continue;
    left.length = best.length;
    left.id = best.id;
    left.next = right.next;
    right.length = 0;
    if (left.next >= 0) symbols[left.next].previous = best.left;
    consider(left.previous, best.left);
    consider(best.left, left.next);
  }
  std::vector<BpeSymbol> merged;
  for (int32_t i = count > 0 ? 0 : -1; i >= 0; i = symbols[i].next) merged.push_back(symbols[i]);
  return merged;
}

}  // namespace coppice::tokenizer
