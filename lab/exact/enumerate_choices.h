// Runs code once for every sequence of choices that it can make through ChoiceSource
// (tests/decoding/README.md 1). This gives exact output distributions instead of samples. Used by
// tests/decoding and lab/golden. Thread-compatible.
//
//   EnumerateChoices([&](ScriptedChoices* choices) {
//     run(choices);
//     distribution[outcome] += choices->probability();
//   });
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "decoding/joint/choice_source.h"
#include "sampling/deterministic_math.h"

namespace coppice::test {

// Replays a script of option numbers, extends it by first options, and multiplies the
// probabilities.
class ScriptedChoices : public decoding::ChoiceSource {
 public:
  void BeginRound(uint64_t) override {}
  decoding::Draw Choose(sampling::Domain, uint32_t,
                        const decoding::LayerDistribution& distribution) override {
    const std::vector<decoding::EntryMass> entries = decoding::ListEntries(distribution);
    // Relative to the largest mass, so that tiny masses still count.
    double most = -std::numeric_limits<double>::infinity();
    for (const decoding::EntryMass& entry : entries) most = std::max(most, entry.log_mass);
    if (most > -700) most = 0;
    std::vector<double> weights;
    for (const decoding::EntryMass& entry : entries)
      weights.push_back(sampling::Exp(entry.log_mass - most));
    return {entries[Next(weights)].entry, std::numeric_limits<double>::infinity()};
  }
  decoding::Coin Accept(uint64_t, uint32_t, double a, double b) override {
    const double accept = a >= b ? 1.0 : a / b;
    return {Next({accept, 1 - accept}) == 0, std::numeric_limits<double>::infinity()};
  }
  decoding::Selection Select(uint64_t, absl::Span<const double> log_weights) override {
    std::vector<double> weights;
    for (double log_weight : log_weights) weights.push_back(sampling::Exp(log_weight));
    return {Next(weights), std::numeric_limits<double>::infinity()};
  }
  // Takes an option. Its probability is proportional to its weight. An option of weight 0 is never
  // taken.
  int Next(const std::vector<double>& weights) {
    if (depth_ == script_.size()) script_.push_back({-1, 0, 0});
    Step& step = script_[depth_++];
    if (step.option < 0) {
      for (double weight : weights) step.total += weight;
      step.option = Following(weights, -1);
    }
    step.next = Following(weights, step.option);
    probability_ *= weights[step.option] / step.total;
    return step.option;
  }
  double probability() const { return probability_; }
  // Moves to the next script. Returns false when all have been replayed.
  bool Advance() {
    while (!script_.empty() && script_.back().next < 0) script_.pop_back();
    depth_ = 0;
    probability_ = 1;
    if (script_.empty()) return false;
    script_.back().option = script_.back().next;
    return true;
  }

 private:
  struct Step {
    int option;
    int next;  // the option after this one, -1 = none
    double total;
  };
  static int Following(const std::vector<double>& weights, int option) {
    for (int i = option + 1; i < weights.size(); ++i) {
      if (weights[i] > 0) return i;
    }
    return -1;
  }
  std::vector<Step> script_;
  size_t depth_ = 0;
  double probability_ = 1;
};

// Calls run once for every sequence of choices. Returns the number of sequences.
inline int64_t EnumerateChoices(const std::function<void(ScriptedChoices*)>& run) {
  ScriptedChoices choices;
  int64_t runs = 0;
  do {
    run(&choices);
    ++runs;
  } while (choices.Advance());
  return runs;
}

}  // namespace coppice::test
