// Choice sources that wrongly share noise: mutants that seeded_distribution_test must detect.
#pragma once

#include "lab/exact/forwarded_choices.h"

namespace coppice::decoding {

// Residual draws with the noise of the draft.
class ResidualOfDraftNoise : public test::ForwardedChoices {
 public:
  using test::ForwardedChoices::ForwardedChoices;
  Draw Choose(sampling::Domain domain, uint32_t slot,
              const LayerDistribution& distribution) override {
    return choices_->Choose(
        domain == sampling::Domain::kResidual ? sampling::Domain::kDraft : domain, slot,
        distribution);
  }
};

// Draws from the target with the noise of the drafts of the same slots.
class DirectOfDraftNoise : public test::ForwardedChoices {
 public:
  using test::ForwardedChoices::ForwardedChoices;
  Draw Choose(sampling::Domain domain, uint32_t slot,
              const LayerDistribution& distribution) override {
    return choices_->Choose(domain == sampling::Domain::kDirect ? sampling::Domain::kDraft : domain,
                            slot, distribution);
  }
};

// Draws from the target with the noise of the residual draw.
class DirectOfResidualNoise : public test::ForwardedChoices {
 public:
  using test::ForwardedChoices::ForwardedChoices;
  Draw Choose(sampling::Domain domain, uint32_t slot,
              const LayerDistribution& distribution) override {
    if (domain == sampling::Domain::kResidual) residual_slot_ = slot;
    return domain == sampling::Domain::kDirect
               ? choices_->Choose(sampling::Domain::kResidual, residual_slot_, distribution)
               : choices_->Choose(domain, slot, distribution);
  }

 private:
  uint32_t residual_slot_ = 0;
};

// One coin for all drafts of a node.
class OneCoin : public test::ForwardedChoices {
 public:
  using test::ForwardedChoices::ForwardedChoices;
  Coin Accept(uint64_t layer_hash, uint32_t, double a, double b) override {
    return choices_->Accept(layer_hash, 0, a, b);
  }
};

// The same noise after every path.
class OneNoiseForAllPaths : public test::ForwardedChoices {
 public:
  using test::ForwardedChoices::ForwardedChoices;
  Draw Choose(sampling::Domain domain, uint32_t slot,
              const LayerDistribution& distribution) override {
    LayerDistribution keyless = distribution;
    for (WeightedRow& row : keyless.rows) row.hash = 7;
    return choices_->Choose(domain, slot, keyless);
  }
};

}  // namespace coppice::decoding
