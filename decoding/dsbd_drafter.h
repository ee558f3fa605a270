// DSBD's drafter: every layer is W_S iid draws from q_beam, the joint law of the draft beams
// (ALGORITHMS.md 5.1), seeded with the target's scores and multiplicities. Ships the draws in
// drawing order, the distinct nodes and the proposals. The draft node owns one per round;
// thread-compatible.
#pragma once

#include <memory>
#include <vector>

#include "decoding/choice_source.h"
#include "decoding/drafter.h"

namespace coppice {

class DsbdDrafter : public Drafter {
 public:
  // width = W_S >= 1. `choices` decides the draws (SeededChoices in production).
  DsbdDrafter(const DecodingParams& params, const DraftState& state, int width,
              std::shared_ptr<ChoiceSource> choices);

  absl::Span<const int32_t> frontier() const override { return frontier_; }
  void Grow(absl::Span<const Distribution> rows) override;
  const DraftForest& forest() const override { return forest_; }

 private:
  struct Beam {        // a draft beam that may be continued
    uint64_t hash;     // H(path)
    double score;      // dls, nats: the target's ls, then + log q
    int multiplicity;  // copies among the draws
  };

  const std::vector<TokenId> stop_ids_;
  const int width_;
  std::shared_ptr<ChoiceSource> choices_;
  std::vector<int32_t> frontier_;
  std::vector<Beam> beams_;  // [frontier]
  DraftForest forest_;
};

// Seeded. The state and the width have been checked (MakeDrafter).
std::unique_ptr<Drafter> MakeDsbdDrafter(const DecodingParams& params, const DraftState& state,
                                         int width);

}  // namespace coppice
