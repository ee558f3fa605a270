// The same target rows in the two forms that a decision can read: as an array over the vocabulary,
// from which the pruned kernel draws, and as a list of entries. Used by tests/decoding.
#pragma once

#include <limits>
#include <memory>
#include <vector>

#include "decoding/joint/layer_distribution.h"
#include "sampling/deterministic_math.h"
#include "sampling/logits_processing.h"
#include "sampling/processed_row.h"
#include "sampling/rng.h"

namespace coppice::test {

// The tokens of positive mass, with the logarithms of their masses. Not normalised.
inline sampling::Distribution SparseRow(const std::vector<double>& mass) {
  sampling::Distribution row;
  for (int v = 0; v < mass.size(); ++v) {
    if (mass[v] <= 0) continue;
    row.tokens.push_back(v);
    row.log_probs.push_back(sampling::Log(mass[v]));
  }
  return row;
}

// A RowSource of random f32 logits. Every `hole`-th token is -inf; 0: none is.
class LogitRows : public sampling::RowSource {
 public:
  LogitRows(int vocab, uint64_t seed, int hole = 0) : seed_(seed), hole_(hole), logits_(vocab) {}
  absl::Span<const float> Logits(int row) override {
    for (int v = 0; v < logits_.size(); ++v) {
      const bool gone = hole_ > 0 && v % hole_ == hole_ - 1;
      logits_[v] =
          gone ? -std::numeric_limits<float>::infinity()
               : static_cast<float>(sampling::Gumbel(seed_, sampling::Domain::kDirect, row, 0, v));
    }
    return logits_;
  }

 private:
  const uint64_t seed_;
  const int hole_;
  std::vector<float> logits_;
};

// A layer of `beams` beams with different scores and multiplicities, and a proposal of `support`
// tokens for each. A single beam has weight 1, like a node's row.
struct RowForms {
  RowForms(int beams, int vocab, int support, uint64_t seed, int hole = 0) : proposals(beams) {
    LogitRows rows(vocab, seed, hole);
    const decoding::DecodingParams params;
    std::vector<decoding::WeightedBeam> whole_beams, listed_beams;
    listed.reserve(beams);
    for (int b = 0; b < beams; ++b) {
      whole.push_back(std::make_unique<sampling::ProcessedRow>(params));
      whole.back()->Read(&rows, b, 0);
      listed.push_back(whole.back()->Materialise().row);
      const uint64_t hash = 1000 + b;
      whole_beams.push_back({hash, -1.0 * b, b + 1, nullptr, whole.back().get()});
      listed_beams.push_back({hash, -1.0 * b, b + 1, &listed.back(), nullptr});
      sampling::SamplingParams top;
      top.top_k = support;
      top.temperature = 0.8;
      proposals[b] = sampling::ProcessRow(rows.Logits(b), top);
      decoding::WeightedRow proposal;
      proposal.hash = hash;
      proposal.log_weight = beams == 1 ? 0 : sampling::Log(1.0 / beams);
      proposal.sparse = &proposals[b];
      q.rows.push_back(proposal);
    }
    p_whole = decoding::MakeLayerDistribution(whole_beams);
    p_listed = decoding::MakeLayerDistribution(listed_beams);
  }
  RowForms(const RowForms&) = delete;

  std::vector<std::unique_ptr<sampling::ProcessedRow>> whole;
  std::vector<sampling::Distribution> listed;
  std::vector<sampling::Distribution> proposals;
  decoding::LayerDistribution p_whole, p_listed, q;
};

}  // namespace coppice::test
