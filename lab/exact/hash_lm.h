// HashLM, the deterministic test model of tests/golden/README.md: a row is a pure function of the
// path hash. Used by tests/decoding, lab/golden and lab/bench/decoding. Thread-compatible.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "decoding/beam_decoder.h"
#include "decoding/forest.h"
#include "sampling/deterministic_math.h"
#include "sampling/distribution.h"
#include "sampling/rng.h"

namespace coppice::test {

struct HashLm {
  int vocab_size = 8;  // V <= 1000
  uint64_t salt = 1;   // chooses the target
  int power = 3;       // 3 is flat, 8 peaked; <= 12
  uint64_t noise = 0;  // chooses the draft

  // Integer weights after the power, [V].
  std::vector<uint64_t> TargetWeights(uint64_t hash) const { return Weights(hash, false); }
  std::vector<uint64_t> DraftWeights(uint64_t hash) const { return Weights(hash, true); }
  // log(weight / sum), nats, [V].
  std::vector<double> TargetLogProbs(uint64_t hash) const { return LogProbs(TargetWeights(hash)); }
  std::vector<double> DraftLogProbs(uint64_t hash) const { return LogProbs(DraftWeights(hash)); }

  static std::vector<double> LogProbs(const std::vector<uint64_t>& weights) {
    uint64_t sum = 0;
    for (uint64_t weight : weights) sum += weight;
    std::vector<double> out;
    out.reserve(weights.size());
    for (uint64_t weight : weights) {
      out.push_back(sampling::Log(static_cast<double>(weight) / static_cast<double>(sum)));
    }
    return out;
  }

 private:
  std::vector<uint64_t> Weights(uint64_t hash, bool draft) const {
    std::vector<uint64_t> out(vocab_size);
    for (int v = 0; v < vocab_size; ++v) {
      int64_t t = 1 + static_cast<int64_t>(
                          sampling::Finalize(hash ^ sampling::Finalize(v + 1000003 * salt)) >> 60);
      if (draft) {
        t += static_cast<int64_t>(
                 sampling::Finalize(hash ^ sampling::Finalize(v + 1000003 * noise)) >> 62) -
             2;
        t = std::max<int64_t>(1, t);
      }
      uint64_t weight = 1;
      for (int i = 0; i < power; ++i) weight *= static_cast<uint64_t>(t);
      out[v] = weight;
    }
    return out;
  }
};

// Every entry of a dense row of log-probabilities whose probability is positive.
inline sampling::Distribution DenseDistribution(absl::Span<const double> log_probs) {
  sampling::Distribution out;
  for (size_t v = 0; v < log_probs.size(); ++v) {
    if (log_probs[v] == -std::numeric_limits<double>::infinity()) continue;
    out.tokens.push_back(static_cast<TokenId>(v));
    out.log_probs.push_back(log_probs[v]);
  }
  return out;
}

// H(path) of every row of a round: the roots' hashes first, then one per node.
inline std::vector<uint64_t> RowHashes(absl::Span<const uint64_t> root_hash,
                                       const decoding::DraftForest& forest) {
  std::vector<uint64_t> out(root_hash.begin(), root_hash.end());
  for (int i = 0; i < forest.size(); ++i) {
    out.push_back(sampling::ExtendHash(out[forest.RowOf(forest.parent[i])], forest.token[i]));
  }
  return out;
}

// The target rows of one round. `in_f32` serves f32 logits instead of f64 log-probabilities.
class HashLmRows : public sampling::RowSource {
 public:
  HashLmRows(const HashLm& lm, absl::Span<const uint64_t> root_hash,
             const decoding::DraftForest& forest, bool in_f32 = false)
      : lm_(lm), hashes_(RowHashes(root_hash, forest)), in_f32_(in_f32) {}

  absl::Span<const float> Logits(int row) override {
    ++rows_read_;
    const std::vector<double> log_probs = lm_.TargetLogProbs(hashes_[row]);
    f32_.assign(log_probs.begin(), log_probs.end());
    return f32_;
  }
  absl::Span<const double> LogProbs(int row) override {
    if (in_f32_) return {};
    ++rows_read_;
    f64_ = lm_.TargetLogProbs(hashes_[row]);
    return f64_;
  }
  int rows_read() const { return rows_read_; }

 private:
  HashLm lm_;
  std::vector<uint64_t> hashes_;
  bool in_f32_;
  int rows_read_ = 0;
  std::vector<float> f32_;
  std::vector<double> f64_;
};

}  // namespace coppice::test
