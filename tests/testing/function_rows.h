// Target rows from a function of the path hash, f64. Used by tests/decoding and tools/golden.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "decoding/beam_decoder.h"
#include "decoding/forest.h"
#include "tests/testing/hash_lm.h"

namespace coppice {

// A model as a function of the path hash: unwarped log-probabilities [V].
using LogProbsOf = std::function<std::vector<double>(uint64_t hash)>;

class FunctionRows : public RowSource {
 public:
  FunctionRows(LogProbsOf model, absl::Span<const uint64_t> root_hash, const DraftForest& forest)
      : model_(std::move(model)), hashes_(RowHashes(root_hash, forest)) {}
  absl::Span<const float> Logits(int) override { return {}; }
  absl::Span<const double> LogProbs(int row) override {
    row_ = model_(hashes_[row]);
    return row_;
  }

 private:
  LogProbsOf model_;
  std::vector<uint64_t> hashes_;
  std::vector<double> row_;
};

}  // namespace coppice
