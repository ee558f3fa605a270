// How the KV pool divides the layers of a model with windows into groups of one size, so that blocks
// can give back the pages of layers whose windows have passed them. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "model/model_config.h"

namespace coppice::model {

// Layers of one group have one window. A page has room for as many layers as the largest group has;
// the size is chosen so that little of it is left empty, in short contexts and in long ones.
struct KvLayout {
  int layers = 0;                        // of a page
  std::vector<int> windows;              // [groups], 0: all; empty: no windows, a block is a page
  std::vector<kernels::KvPlace> places;  // [layers of the model]; empty with `windows`

  int groups() const { return windows.empty() ? 1 : static_cast<int>(windows.size()); }
  // The most blocks that one sequence fills for each page that it holds: a bound, at least 1.
  int64_t blocks_per_page(int max_positions) const;
  // Pages of a sequence that has `tokens` tokens in its prefix, between steps.
  int64_t PagesOf(int64_t tokens) const;
};

// free_windows: false: all layers keep everything, in one group, as also in a draft that takes
// states, which are kept for all tokens.
KvLayout KvLayoutOf(const ModelConfig& config, bool free_windows = true);

}  // namespace coppice::model
