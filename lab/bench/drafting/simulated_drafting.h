// A sequence that is drafted and verified on the rows of a pair, with the production decoder and a
// simulated clock: what a draft node gains that computes rows while the target verifies. The unit
// of time is the target's pass. One sequence, alone. Pure but for the rows; thread-compatible.
#pragma once

#include <string>
#include <vector>

#include "decoding/params.h"
#include "lab/bench/drafting/pair_rows.h"
#include "lab/bench/drafting/possible_worlds.h"

namespace coppice::lab {

struct SimulatedMachine {
  double draft_pass = .25;  // one pass of the draft model
  double delay = 0;         // of a message, one way
  int pass_rows = 8;        // rows of a pass of the draft model; more take several passes
};

struct DraftingPolicy {
  enum class Kind {
    kLevels,  // as the product: the method's drafter, level by level, after each verdict
    // The method's drafter, which goes on to deeper levels while the target verifies. A request
    // waits for missing rows only in its first levels, and only where they are among the best.
    kDeeper,
    kWorlds,  // possible worlds choose rows and nodes, and when a forest is sent
    kAhead,   // the same, and rows are computed while the target verifies
    kStream,  // all rows go to the leader as they are computed; it makes the forest itself
  };
  Kind kind = Kind::kLevels;
  int width = 8, depth = 4;  // kLevels; kDeeper: of what is sent
  int waits = 0, firm = 1;   // kDeeper: levels that wait, and for how many of their first rows
  double worth = .5;         // kWorlds, kAhead: layers that one more pass is thought to be worth
  double least_layers = 0;   // kStream: expected layers for which the leader waits
  int nodes = 48;            // of a forest
  int kept_rows = 64;        // rows that a node computes below the roots
  std::string Name() const;
};

struct SimulatedRun {
  // The first round has no draft, whoever drafts, and is not counted.
  int layers = 0, rounds = 0;
  double time = 0;              // in passes of the target
  int rows = 0;                 // of the draft model
  std::vector<TokenId> output;  // of the best hypothesis
};

// The method is Gumbel coupling. rows: of the sequence's prompt.
SimulatedRun SimulateDrafting(const decoding::DecodingParams& params, const WorldsOptions& worlds,
                              const DraftingPolicy& policy, const SimulatedMachine& machine,
                              PairRows* rows);

}  // namespace coppice::lab
