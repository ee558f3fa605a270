// How a replica stores KV, as far as admission must know it: on workers, and in the coordinator,
// which learns it when a worker registers. A flat value.
#pragma once

#include <vector>

namespace coppice {

struct KvStorage {
  int block_size = 16;  // tokens
  // With windows a block consists of pages, one for each group of layers (docs/architecture.md 4):
  // the window of each group, 0: all. Empty: a block is one page.
  std::vector<int> windows = {};
  int step_tokens = 0;  // the most tokens of a prompt in one step
};

}  // namespace coppice
