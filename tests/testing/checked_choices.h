// A ChoiceSource that forwards every call and checks the arguments (tests/decoding/README.md 6):
// there is no NaN, no distribution is empty, and probabilities are in [0, 1]. Records the
// distributions of residual draws. Used by tests/decoding.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "lab/exact/forwarded_choices.h"
#include "sampling/deterministic_math.h"

namespace coppice::test {

class CheckedChoices : public ForwardedChoices {
 public:
  using EntryDistribution = std::map<std::pair<int, TokenId>, double>;  // (beam, token) -> mass

  // No distribution may sum to more than 1 + tolerance.
  explicit CheckedChoices(decoding::ChoiceSource* choices, double tolerance = 1e-12)
      : ForwardedChoices(choices), tolerance_(tolerance) {}

  decoding::Draw Choose(sampling::Domain domain, uint32_t slot,
                        const decoding::LayerDistribution& distribution) override {
    CheckDistribution(distribution);
    if (domain == sampling::Domain::kResidual) {
      residuals_.emplace_back();
      for (const decoding::EntryMass& e : decoding::ListEntries(distribution))
        residuals_.back()[{e.entry.beam, e.entry.token}] = sampling::Exp(e.log_mass);
    }
    return ForwardedChoices::Choose(domain, slot, distribution);
  }
  decoding::Coin Accept(uint64_t layer_hash, uint32_t slot, double a, double b) override {
    EXPECT_TRUE(a >= 0 && std::isfinite(a)) << a;
    EXPECT_TRUE(b > 0 && std::isfinite(b)) << b;
    return ForwardedChoices::Accept(layer_hash, slot, a, b);
  }
  decoding::Selection Select(uint64_t layer_hash, absl::Span<const double> log_weights) override {
    for (double weight : log_weights) EXPECT_TRUE(std::isfinite(weight)) << weight;
    return ForwardedChoices::Select(layer_hash, log_weights);
  }

  const std::vector<EntryDistribution>& residuals() const { return residuals_; }

 private:
  void CheckDistribution(const decoding::LayerDistribution& distribution) const {
    for (const decoding::WeightedRow& row : distribution.rows) {
      EXPECT_FALSE(std::isnan(row.log_weight));
      for (double log_mass : row.changed_log_mass) EXPECT_FALSE(std::isnan(log_mass));
      if (row.sparse == nullptr) continue;
      for (double log_prob : row.sparse->log_probs) EXPECT_FALSE(std::isnan(log_prob));
    }
    double sum = 0;
    for (const decoding::EntryMass& entry : decoding::ListEntries(distribution))
      sum += sampling::Exp(entry.log_mass);
    EXPECT_LE(sum, 1 + tolerance_);
    EXPECT_TRUE(decoding::HasMass(distribution));
  }

  const double tolerance_;
  std::vector<EntryDistribution> residuals_;
};

}  // namespace coppice::test
