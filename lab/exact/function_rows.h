// Target rows from a function of the path hash, as f64 log-probabilities or f32 logits. Used by
// tests/decoding and lab/golden.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "decoding/beam_decoder.h"
#include "decoding/forest.h"
#include "lab/exact/hash_lm.h"

namespace coppice::test {

// A model as a function of the path hash: raw log-probabilities [V].
using LogProbsOf = std::function<std::vector<double>(uint64_t hash)>;

class FunctionRows : public sampling::RowSource {
 public:
  FunctionRows(LogProbsOf model, absl::Span<const uint64_t> root_hash,
               const decoding::DraftForest& forest, bool in_f32 = false)
      : model_(std::move(model)), hashes_(RowHashes(root_hash, forest)), in_f32_(in_f32) {}
  absl::Span<const float> Logits(int row) override {
    const std::vector<double> log_probs = model_(hashes_[row]);
    f32_.assign(log_probs.begin(), log_probs.end());
    return f32_;
  }
  absl::Span<const double> LogProbs(int row) override {
    if (in_f32_) return {};
    row_ = model_(hashes_[row]);
    return row_;
  }

 private:
  LogProbsOf model_;
  std::vector<uint64_t> hashes_;
  bool in_f32_;
  std::vector<double> row_;
  std::vector<float> f32_;
};

}  // namespace coppice::test
