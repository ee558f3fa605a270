// How a forest comes to be in a simulated round, and when it reaches the target: one class for each
// kind of DraftingPolicy. Used by simulated_drafting alone.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "decoding/forest.h"
#include "decoding/params.h"
#include "lab/bench/drafting/pair_rows.h"
#include "lab/bench/drafting/possible_worlds.h"
#include "lab/bench/drafting/simulated_drafting.h"

namespace coppice::lab {

class RoundDrafter {
 public:
  virtual ~RoundDrafter() = default;
  // The forest after a verdict. *time: of the verdict, and then of the forest at the leader.
  virtual decoding::DraftForest Draft(const decoding::DraftState& state, int depth,
                                      double* time) = 0;
  int rows() const { return rows_; }  // of the draft model, so far

 protected:
  int rows_ = 0;
};

// All must outlive the drafter.
std::unique_ptr<RoundDrafter> MakeRoundDrafter(const decoding::DecodingParams& params,
                                               const WorldsOptions& worlds,
                                               const DraftingPolicy& policy,
                                               const SimulatedMachine& machine, PairRows* rows);

// The hashes of the roots and then of the nodes, which all get names.
std::vector<uint64_t> NamePaths(const decoding::DraftState& state,
                                const decoding::DraftForest& forest, PairRows* rows);

}  // namespace coppice::lab
