// A ChoiceSource that records its calls and answers, and the comparison of a seeded draw with a
// golden one, uniform by uniform (docs/algorithms.md 2). Used by the seeded cases of this folder.
#pragma once

#include <string>
#include <vector>

#include "lab/exact/forwarded_choices.h"
#include "lab/golden/golden_case.h"

namespace coppice::golden {

struct RecordedDraw {
  sampling::Domain domain;
  uint32_t slot;
  // hashes and what remains of the rows; rows outlive the round
  decoding::LayerDistribution distribution;
  std::vector<decoding::EntryMass> entries;
  std::vector<decoding::Entry> winners;  // in drawing order; one, unless drawn without replacement
};

struct RecordedCoin {
  uint64_t layer_hash;
  uint32_t slot;
  double a, b;
  bool accepted;
};

class RecordedChoices : public test::ForwardedChoices {
 public:
  using test::ForwardedChoices::ForwardedChoices;
  decoding::Draw Choose(sampling::Domain domain, uint32_t slot,
                        const decoding::LayerDistribution& distribution) override {
    const decoding::Draw draw = test::ForwardedChoices::Choose(domain, slot, distribution);
    draws.push_back(
        {domain, slot, distribution, decoding::ListEntries(distribution), {draw.entry}});
    return draw;
  }
  std::vector<decoding::Entry> ChooseDistinct(sampling::Domain domain, uint32_t slot,
                                              const decoding::LayerDistribution& distribution,
                                              int count) override {
    const std::vector<decoding::Entry> winners =
        choices_->ChooseDistinct(domain, slot, distribution, count);
    draws.push_back({domain, slot, distribution, decoding::ListEntries(distribution), winners});
    return winners;
  }
  decoding::Coin Accept(uint64_t layer_hash, uint32_t slot, double a, double b) override {
    const decoding::Coin coin = test::ForwardedChoices::Accept(layer_hash, slot, a, b);
    coins.push_back({layer_hash, slot, a, b, coin.accepted});
    return coin;
  }
  std::vector<RecordedDraw> draws;
  std::vector<RecordedCoin> coins;
};

struct Seeding {
  uint64_t seed;
  uint64_t epoch;
};

// `draw` of the schema's seeded_rejection.
void CheckDraw(const std::string& name, const Seeding& seeding, const RecordedDraw& draw,
               const Json& want, CaseCheck* check);

}  // namespace coppice::golden
