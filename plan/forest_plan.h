// Draft forests whose levels a device chooses (docs/algorithms.md 5.7): all forward passes of the
// forests at once, so that the host need not choose between two of them. The draft node makes a
// plan (draft_node/device_forests.h); a backend that supports it runs it (kernels/backend.h). Flat
// arrays.
#pragma once

#include <cstdint>
#include <vector>

#include "base/types.h"
#include "plan/step_plan.h"

namespace coppice {

// How the next level is chosen from the draft rows of a level.
struct DeviceDrafting {
  enum class Kind : uint8_t {
    kScore,  // the largest score + log q (docs/algorithms.md 5.9)
    // By the draws and picks of the slots (5.7, and docs/decisions.md, "Drafts look one pick ahead").
    kPicks,
  };
  Kind kind = Kind::kScore;
  int32_t width = 0;       // W_S: nodes of a level
  int32_t support = 0;     // tokens of q: that many of the most likely, renormalised
  double temperature = 1;  // temperature of q
  std::vector<TokenId> stop_ids;
  // For kPicks. As in DecodingParams.
  uint64_t seed = 0;
  int32_t beam_width = 0;
  bool refill = false, set_semantics = false;
};

// Level 0 of a forest has the rows of its roots. At a level l >= 1 the device puts the nodes that
// it has chosen into the first of the forest's rows: it replaces token and chain. Until then row j
// is token 0 below row j of the level before, at level 1 below root j % roots. So the rows of a
// level know their slots and positions, and all rows of a level have chains of one length.
struct ForestPlan {
  struct Level {
    int32_t first_row = 0, rows = 0;
    int32_t first_need = 0;  // each of these rows has a need
  };
  struct Forest {
    DeviceDrafting rule;
    std::vector<uint64_t> root_hash;  // [roots] path hashes
    std::vector<double> root_score;   // [roots] nats
    // For kPicks, [slots]: the slot's root; its next token and what that adds to the score, if they
    // are known, else -1.
    std::vector<int32_t> slot_root;
    std::vector<TokenId> slot_token;
    std::vector<double> slot_log_prob;
    std::vector<Level> levels;
  };
  std::vector<StepPlan> levels;  // of all forests together
  std::vector<Forest> forests;
};

// The nodes that the device has chosen: exactly its rows.
struct GrownForest {
  struct Layer {
    std::vector<TokenId> token;
    std::vector<int32_t> parent;  // index in the layer above, or of the root in the first layer
  };
  std::vector<Layer> layers;  // none is empty
  // The first level with a draft row that is not valid: node of the level, its lowest token whose
  // logit is NaN or +inf. -1 = none.
  int32_t bad_level = -1, bad_node = 0;
  TokenId bad_token = -1;
  float bad_logit = 0;
};

}  // namespace coppice
