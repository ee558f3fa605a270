// Small block drafters (DFlash, DSpark) with seeded random weights, with the fields and tensors
// that a published one has. The target that they are for is a tiny Llama.
//   WriteTinyLlama(MakeTinyDFlash(target, {.layers = 2}), dir.path());
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/testing/tiny_llama.h"

namespace coppice::test {

struct TinyDFlashOptions {
  int layers = 3;
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 16;
  int block = 6;
  int mask = 5;
  std::vector<int> target_layers = {0, 2};
  int markov_rank = 0;     // 0: none; its tensors are BF16
  bool dspark = false;     // Qwen3DSparkModel instead of DFlashDraftModel
  bool owns_ends = false;  // has an embedding and a head of its own
  std::string dtype = "F32";
  uint64_t seed = 2;
};

// hidden size, vocabulary and positions are those of the target.
TinyLlama MakeTinyDFlash(const TinyLlama& target, const TinyDFlashOptions& options = {});

}  // namespace coppice::test
