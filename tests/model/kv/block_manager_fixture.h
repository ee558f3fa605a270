// Prompts and sequences for the tests of the block manager.
#pragma once

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "kernels/backend.h"
#include "model/kv/block_manager.h"

namespace coppice::model {

inline std::vector<TokenId> Iota(int count, TokenId first = 0) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

inline BlockManager Make(int64_t blocks, int scratch_blocks = 4, bool cache = true) {
  return BlockManager(
      {.num_blocks = blocks, .scratch_blocks = scratch_blocks, .prefix_cache = cache});
}

// Opens a sequence, prefills everything that is not cached, and ends the round.
inline SequenceHandle OpenFilled(BlockManager& blocks, const std::vector<TokenId>& prompt) {
  int cached = 0;
  const SequenceHandle sequence = blocks.Open(prompt, &cached);
  EXPECT_TRUE(blocks.AppendPrefix(sequence, absl::MakeSpan(prompt).subspan(cached)).ok());
  blocks.EndRound();
  return sequence;
}

}  // namespace coppice::model
