// How a replica stores KV, as far as admission must know it: on workers, and in the coordinator,
// which learns it when a worker registers. A flat value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace coppice {

struct KvStorage {
  int block_size = 16;  // tokens
  // With windows a block consists of pages, one for each group of layers (docs/architecture.md 4):
  // the window of each group, 0: all. Empty: a block is one page.
  std::vector<int> windows = {};
  int step_tokens = 0;  // the most tokens of a prompt in one step
};

// The pages, or blocks, of a prefix of so many tokens, between steps.
inline int64_t PagesOf(const KvStorage& storage, int64_t tokens) {
  const auto blocks = [&](int64_t of) {
    return (of + storage.block_size - 1) / storage.block_size;
  };
  if (storage.windows.empty()) return blocks(tokens);
  int64_t pages = 0;
  for (const int64_t window : storage.windows)
    pages += window == 0 ? blocks(tokens) : std::min(blocks(tokens), blocks(window) + 1);
  return pages;
}

}  // namespace coppice
