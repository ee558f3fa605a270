// A whole target row without some tokens: what a residual keeps of P outside the proposed tokens.
// Built once per beam and layer by decoding/joint/residual.cc. Immutable.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "base/types.h"
#include "sampling/gumbel_kernels.h"
#include "sampling/processed_row.h"

namespace coppice::sampling {

class RowWithout {
 public:
  // row.whole(); removed: tokens of the vocabulary.
  RowWithout(const ProcessedRow& row, absl::Span<const TokenId> removed);
  // log of the sum of pt over the tokens left, summed over them (never as 1 - removed); -inf when
  // nothing is left.
  double log_mass() const { return log_mass_; }
  // argmax of log pt + Gumbel(key) over the tokens left. At least one must be left.
  NoisyWinner DrawToken(const NoiseKey& key) const {
    return ArgmaxWithNoise(x_, weights_.data(), sum_, key);
  }

 private:
  std::vector<double> x_;       // [vocab], removed ones -inf
  std::vector<float> weights_;  // [vocab, padded]
  LogSum sum_;
  double log_mass_;
};

}  // namespace coppice::sampling
