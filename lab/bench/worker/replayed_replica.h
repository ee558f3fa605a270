// A simulated replica for lab/bench/worker/sizer_replay. It has the order of worker/engine.cc: what
// has arrived, admission, the wait for forests, a step, decisions and the next requests for drafts.
// ForestSizer, RoundCosts and WaitForForests are those of the product; models are replaced by
// chances, steps by their costs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lab/bench/worker/replayed_machine.h"
#include "worker/batching_wait.h"
#include "worker/forest_sizer.h"

namespace coppice::lab {

// How often a layer of a given width is covered.
struct DraftQuality {
  std::string name;
  int beams = 1;
  std::map<int, double> first, informed;  // by width; linear between
  double deep = 1;                        // factor for later layers
};
std::vector<DraftQuality> Qualities();

struct ReplayOptions {
  int clients = 1;
  int requests = 100;  // that end
  bool drafts = true;
  int width = 0, depth = 0;  // prescribed; 0: the sizer chooses
  int prompt_low = 60, prompt_high = 300, tokens_low = 64, tokens_high = 192;
  uint64_t seed = 1;
  // How sequences share steps: as the product does, all in one group that waits for its last forest,
  // or in two groups that have steps of their own, by turns.
  enum class Groups { kProduct, kOne, kTwo };
  Groups groups = Groups::kProduct;
  // The replica is told at the start what the products of padded steps take.
  bool knows_products = true;
};

struct ReplayResult {
  double tokens_per_s = 0;
  double layers_per_round = 0;
  double drafted_share = 0;    // rounds with a draft
  double read_share = 0;       // sequences whose prompts a draft node read
  std::vector<int> step_rows;  // of each step without prompts
};

ReplayResult Replay(const MachineCosts& costs, const DraftQuality& quality,
                    const ReplayOptions& options);

}  // namespace coppice::lab
