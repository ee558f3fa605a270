// A ChoiceSource that passes everything on: base of the deliberately wrong variants that laws must
// be able to reject, and of recorders. Used by tests/decoding and tools/golden.
#pragma once

#include "decoding/choice_source.h"

namespace coppice {

class ForwardedChoices : public ChoiceSource {
 public:
  // *choices must outlive this.
  explicit ForwardedChoices(ChoiceSource* choices) : choices_(choices) {}
  void BeginRound(uint64_t epoch) override { choices_->BeginRound(epoch); }
  Draw Choose(Domain domain, uint32_t slot, const LayerLaw& law) override {
    return choices_->Choose(domain, slot, law);
  }
  Coin Accept(uint64_t layer_hash, uint32_t slot, double a, double b) override {
    return choices_->Accept(layer_hash, slot, a, b);
  }
  Selection Select(uint64_t layer_hash, absl::Span<const double> log_weights) override {
    return choices_->Select(layer_hash, log_weights);
  }

 protected:
  ChoiceSource* choices_;
};

// Erratum E1: the coin with its ratio upside down.
class InvertedRatio : public ForwardedChoices {
 public:
  using ForwardedChoices::ForwardedChoices;
  Coin Accept(uint64_t layer_hash, uint32_t slot, double a, double b) override {
    return a > 0 ? choices_->Accept(layer_hash, slot, b, a) : Coin{true, 0.0};
  }
};

}  // namespace coppice
