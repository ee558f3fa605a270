// The pool of ended hypotheses of one sequence: ranking, stop rule and final choice
// (docs/algorithms.md 8). Owned by a decoder. Thread-compatible.
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
    double score;      // ls / len^alpha
    bool finished;
  };

  explicit HypothesisPool(const DecodingParams& params);

  // Inserts equal paths once. A full pool (beam_width entries) drops its worst entry; of equal
  // scores the earlier one is better.
  void Insert(const PathTree& paths, PathId path, double log_score, bool finished);
  // The highest normalised score that a continuation of an active beam with this score and length
  // can reach.
  double Bound(double log_score, int length) const;
  // The stop rule of the policy (FIRST / EXACT); best_active = largest Bound of the active beams.
  // EXACT stops when the hypotheses that will be returned can no longer change.
  bool PolicyStops(double best_active) const;
  absl::Span<const Entry> entries() const { return entries_; }  // best first
  // Best first, at most num_hypotheses.
  std::vector<Hypothesis> Result(const PathTree& paths) const;

 private:
  size_t capacity_;
  int num_hypotheses_;
  int max_tokens_;
  double alpha_;
  bool stop_when_full_;
  std::vector<Entry> entries_;
  absl::flat_hash_set<PathId> inserted_;  // also those that were dropped
};

}  // namespace coppice::decoding
