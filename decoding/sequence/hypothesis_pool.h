// The pool of ended hypotheses of one sequence, or of one group of its beams: ranking, stop rule
// and final choice (docs/algorithms.md 8). Owned by a decoder. Thread-compatible.
#pragma once

#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "decoding/beam_decoder.h"
#include "decoding/params.h"
#include "decoding/path_tree.h"

namespace coppice::decoding {

// len^alpha without libm; exact for alpha 0 and 1.
double LengthFactor(int length, double alpha);
// ls / len^alpha, nats.
double NormalisedScore(double log_score, int length, double alpha);

class HypothesisPool {
 public:
  struct Entry {
    PathId path;
    double log_score;  // ls, nats
    double score;      // (ls - penalty) / len^alpha
    bool finished;
  };

  // With groups (8.2): the pool of one group.
  explicit HypothesisPool(const DecodingParams& params);

  // Inserts equal paths once. A full pool (beam_width entries, or those of a group) drops its worst
  // entry; of equal scores the earlier one is better. penalty: taken from ls for diversity, nats.
  void Insert(const PathTree& paths, PathId path, double log_score, bool finished,
              double penalty = 0);
  // The highest normalised score that a continuation of an active beam with this score and length
  // can reach. log_score: less what was taken for diversity.
  double Bound(double log_score, int length) const;
  // The stop rule of the policy (FIRST / EXACT); best_active = largest Bound of the active beams.
  // EXACT stops when the hypotheses that will be returned, or those of a group, can no longer
  // change.
  // W of the layer that has ended: FIRST waits for as many.
  bool PolicyStops(double best_active, int width) const;
  bool PolicyStops(double best_active) const {
    return PolicyStops(best_active, static_cast<int>(capacity_));
  }
  absl::Span<const Entry> entries() const { return entries_; }  // best first
  // Its score is returned, or may be.
  bool Reaches(double score) const { return min_score_ == kEveryScore || score >= min_score_; }
  // The best of all pools, best first, at most num_hypotheses and none below min_score; of equal
  // scores that of the earlier pool.
  static std::vector<Hypothesis> BestOf(absl::Span<const HypothesisPool> pools,
                                        const PathTree& paths);
  // The best of this pool.
  std::vector<Hypothesis> Result(const PathTree& paths) const {
    return BestOf(absl::MakeConstSpan(this, 1), paths);
  }

 private:
  size_t capacity_;
  size_t num_hypotheses_;
  size_t wanted_;  // hypotheses that EXACT waits for
  int max_tokens_;
  double alpha_;
  double min_score_;
  bool stop_when_full_;
  std::vector<Entry> entries_;
  absl::flat_hash_set<PathId> inserted_;  // also those that were dropped
};

}  // namespace coppice::decoding
