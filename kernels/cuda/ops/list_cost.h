// What the launches of candidate lists and of the choice of levels cost besides bytes. Instructions
// were counted in the machine code of nvcc 13.0 for compute capability 9.0; loops as often as they
// run. For .cu files.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/ops/candidate_lists.h"
#include "kernels/cuda/ops/list_select.h"

namespace coppice::kernels::cuda {

// Instructions of a thread for its 16 tokens of a piece: loads and keys, or with noise all draws and
// a bound of each key, and the choice by them.
inline constexpr int64_t kKeyInstructions = 170, kBoundInstructions = 682, kBoundRest = 210;
// Instructions of a thread that chooses: rounds of a search bit by bit, then a pass over what was
// taken. It takes 32 rounds at most, and 13 to 17 on average for 5 to 81 of 8,192 normal logits.
inline constexpr int64_t kSelectRounds = 16, kRoundInstructions = 35, kSelectRest = 260;
inline constexpr int64_t kSelectInstructions = kSelectRounds * kRoundInstructions + kSelectRest;

// Instructions of a thread of a piece, of which a list wants this many tokens.
constexpr int64_t PieceInstructions(bool noisy, int64_t want) {
  if (!noisy) return kKeyInstructions + kSelectInstructions;
  const int64_t search = want > kSelectWarps ? kSelectRounds * kRoundInstructions : 0;
  return kBoundInstructions + kBoundRest + search;
}

// Instructions of the busiest thread that chooses a level. A warp reads a row (400) and sorts its 128
// entries (560); 16 warps share the rows. A draw has noise, a cost reads the draw's key.
constexpr int64_t ChoiceInstructions(int64_t nodes, int64_t slots, bool picks) {
  constexpr int64_t kRow = 400 + 560, kNoise = 170, kCost = 12;
  const int64_t passes = (nodes + kSelectWarps - 1) / kSelectWarps;
  const int64_t draws = (slots * 4 + kSelectWarps - 1) / kSelectWarps * 2 + 1;
  const int64_t rest = picks ? draws * kNoise + slots * 4 * kCost + 500 : 250;
  return passes * kRow + kSelectInstructions + rest;
}

}  // namespace coppice::kernels::cuda
