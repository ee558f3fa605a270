// A ChoiceSource that forwards every call. It is the base class of recorders and of deliberately
// wrong variants, which distribution tests must reject. Used by tests/decoding and lab/golden.
#pragma once

#include "decoding/joint/choice_source.h"

namespace coppice::test {

class ForwardedChoices : public decoding::ChoiceSource {
 public:
  // *choices must outlive this.
  explicit ForwardedChoices(decoding::ChoiceSource* choices) : choices_(choices) {}
  void BeginRound(uint64_t epoch) override { choices_->BeginRound(epoch); }
  decoding::Draw Choose(sampling::Domain domain, uint32_t slot,
                        const decoding::LayerDistribution& distribution) override {
    return choices_->Choose(domain, slot, distribution);
  }
  decoding::Coin Accept(uint64_t layer_hash, uint32_t slot, double a, double b) override {
    return choices_->Accept(layer_hash, slot, a, b);
  }
  decoding::Selection Select(uint64_t layer_hash, absl::Span<const double> log_weights) override {
    return choices_->Select(layer_hash, log_weights);
  }

 protected:
  decoding::ChoiceSource* choices_;
};

// Erratum E1: the coin with the inverted ratio.
class InvertedRatio : public ForwardedChoices {
 public:
  using ForwardedChoices::ForwardedChoices;
  decoding::Coin Accept(uint64_t layer_hash, uint32_t slot, double a, double b) override {
    return a > 0 ? choices_->Accept(layer_hash, slot, b, a) : decoding::Coin{true, 0.0};
  }
};

}  // namespace coppice::test
