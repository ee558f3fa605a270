// A small EAGLE-3 head with seeded random weights for a target, as SpecForge writes one. A test may
// change its config or tensors before it is written.
//   TempDir target, head;
//   const TinyLlama model = MakeTinyLlama({.layers = 4});
//   WriteTinyLlama(model, target.path());
//   WriteTinyLlama(MakeTinyEagle3(model, {.ids = {1, 2, 5}}), head.path());
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/testing/tiny_llama.h"

namespace coppice::test {

struct TinyEagle3Options {
  // Of the target, whose outputs are joined, from 0. Empty: the first, one in the middle, and the
  // last but one.
  std::vector<int> layers = {};
  std::vector<int> ids = {};   // of a draft vocabulary, ascending; empty: all
  bool has_embedding = false;  // else it is the target's, which needs the target's hidden size
  int hidden = 0;              // 0: that of the target
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 0;  // 0: hidden / heads, and not written in config.json
  int intermediate = 48;
  int max_positions = 64;     // in config.json, as published heads have fewer than their targets
  std::string dtype = "F32";  // F32, F16 or BF16
  uint64_t seed = 1;
};

TinyLlama MakeTinyEagle3(const TinyLlama& target, const TinyEagle3Options& options = {});
// target: a folder with a config.json.
TinyLlama MakeTinyEagle3(const std::string& target, const TinyEagle3Options& options = {});

// The same head as vLLM's speculators writes it: the fields of the layer in an object of their own,
// "layers.0." for "midlayer.", layers counted by what goes into them.
void StoreAsSpeculator(TinyLlama* head);

}  // namespace coppice::test
