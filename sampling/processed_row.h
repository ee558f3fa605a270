// One processed target row, stored in the form that a decision reads fastest. A whole row is an
// array over the vocabulary. A cut row is a sparse list. An uncut row that came as a candidate list
// stays a candidate list. Reuses its buffers from row to row. Owned by a decoder.
// Thread-compatible.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "sampling/deterministic_math.h"
#include "sampling/gumbel_kernels.h"
#include "sampling/logits_processing.h"
#include "sampling/ranked_row.h"
#include "sampling/row_kernels.h"
#include "sampling/row_source.h"
#include "sampling/target_row.h"

namespace coppice::sampling {

class ProcessedRow {
 public:
  struct Candidate {
    TokenId token;
    double log_prob;        // log pt(v), nats
    double score_log_prob;  // what ls accumulates: log pt in mode ROW, else raw log p
  };
  struct Draw {
    Candidate winner;
    double margin;  // nats; at most kMarginCap for a whole row
  };

  // for_draws: DrawToken will be called. In beam search, tokens that a format does not allow are
  // left out of the row, and the rest is not renormalised: hypotheses are ranked by the model's own
  // probabilities of their texts.
  explicit ProcessedRow(const RowParams& params, bool for_draws = true);

  // Reads row `row` of the source. Replaces the previous row.
  void Read(RowSource* rows, int row, const RowPath& path) {
    ReadOrRank(rows, row, path, nullptr, nullptr);
  }
  // The same, unless the row can be ranked where it lies: whole f32 logits that the parameters leave
  // as they are, and a format that allows all tokens or few. Then *ranked is what the query asks
  // for, this object has no row, and the result is true. The format is added to the query.
  bool ReadOrRank(RowSource* rows, int row, const RowPath& path, const RankQuery* query,
                  RankedTokens* ranked);
  // argmax log pt(v) + Gumbel(key, v), the lowest token on ties. Several threads may call it
  // concurrently. A candidate list must have been made for the key.
  Draw DrawToken(const NoiseKey& key) const;
  // Every entry that can be among the `count` largest log pt, or that rounding in a sum could tie
  // with them. Tokens ascending. Leaves out entries of a whole row whose log pt is below `least` by
  // more than rounding in a sum; true if this has left out any.
  bool TopCandidates(size_t count, double least, std::vector<Candidate>* out) const;
  void TopCandidates(size_t count, std::vector<Candidate>* out) const {
    TopCandidates(count, kLogZero, out);
  }
  // All entries, or those of a candidate list. Tokens ascending.
  TargetRow Materialise() const;
  int entries() const;  // upper bound for the entries of Materialise
  // log pt(token); -inf when cut. A candidate list must list the token.
  double LogProb(TokenId token) const;
  // The token must not be cut.
  Candidate Find(TokenId token) const { return At(token, LogProb(token)); }

  // The stored form. whole(): log pt(v) = min(0, values()[v] - log_sum().log), and weights() is for
  // ArgmaxWithNoise. cut(): the entries are sparse(). Neither: a candidate list of an uncut row.
  // When cuts act on the layer (CutsJointly) the row is stored uncut, without weights.
  bool whole() const { return form_ == Form::kWhole; }
  bool cut() const { return form_ == Form::kCut; }
  absl::Span<const double> values() const { return x_; }
  const LogSum& log_sum() const { return sum_; }
  const float* weights() const { return weights_.data(); }
  const Distribution& sparse() const { return sparse_; }
  // For JOINT and ROWCUT, where values() are (log p + bias) / T: log of the sum of exp(value) over
  // the stored entries, nats.
  double log_kept_mass() const;

 private:
  enum class Form { kWhole, kCut, kListed };
  const SamplingParams& SamplingOf(const RowPath& path);
  void ReadList(const CandidateRow& row, const SamplingParams& sampling);
  void ReadAllowed(const CandidateRow& row, const SamplingParams& sampling);
  bool Rank(absl::Span<const float> logits, const SamplingParams& sampling, RankQuery query,
            RankedTokens* ranked);
  Candidate At(TokenId token, double log_prob) const;
  // The token at index i of x_.
  TokenId TokenAt(size_t i) const { return gathered_ ? tokens_[i] : static_cast<TokenId>(i); }
  double UncutLogProb(size_t i) const { return std::min(0.0, x_[i] - sum_.log); }
  Draw DrawListed(const NoiseKey& key) const;

  SamplingParams sampling_;
  SamplingParams sampling_without_stops_;
  // with the penalties of the path and what the format allows after it
  SamplingParams path_sampling_;
  std::shared_ptr<const OutputFormat> format_;
  std::shared_ptr<const std::vector<TokenId>> prompt_ids_;
  int min_tokens_;
  bool for_draws_;
  const bool ranks_;                                 // the decoding is beam search
  std::shared_ptr<const AllowedTokens> candidates_;  // tokens of a row that is not renormalised
  Form form_ = Form::kCut;       // kCut: sparse_ holds the row; else x_, sum_ and, whole, weights_
  bool gathered_ = false;        // x_ and raw_ are [tokens_], not [vocab]
  std::vector<TokenId> tokens_;  // ascending
  std::vector<double> x_;        // [vocab] tempered logits
  std::vector<float> weights_;   // [vocab, padded] for ArgmaxWithNoise
  LogSum sum_{};
  Distribution sparse_;
  std::vector<double> raw_;  // [vocab] raw logits, all modes but ROW; like x_
  double raw_log_sum_ = 0;
  std::vector<float> maxima_;  // working space of Rank
};

}  // namespace coppice::sampling
