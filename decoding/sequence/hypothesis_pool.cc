#include "decoding/sequence/hypothesis_pool.h"

#include <algorithm>

#include "sampling/deterministic_math.h"

namespace coppice::decoding {

double LengthFactor(int length, double alpha) {
  if (alpha == 0) return 1;
  if (alpha == 1) return length;
  return sampling::Exp(alpha * sampling::Log(length));
}

double NormalisedScore(double log_score, int length, double alpha) {
  return log_score / LengthFactor(length, alpha);
}

HypothesisPool::HypothesisPool(const DecodingParams& params)
    : capacity_(params.beam_width),
      num_hypotheses_(params.num_hypotheses),
      max_tokens_(params.max_tokens),
      alpha_(params.length_penalty),
      stop_when_full_(params.stop_when_full) {}

void HypothesisPool::Insert(const PathTree& paths, PathId path, double log_score, bool finished) {
  if (!inserted_.insert(path).second) return;
  const double score = NormalisedScore(log_score, paths.length(path), alpha_);
  if (entries_.size() == capacity_ && !(entries_.back().score < score)) return;
  const auto worse =
      std::upper_bound(entries_.begin(), entries_.end(), score,
                       [](double inserted, const Entry& entry) { return entry.score < inserted; });
  entries_.insert(worse, {path, log_score, score, finished});
  if (entries_.size() > capacity_) entries_.pop_back();
}

// ls <= 0 and never rises. So for alpha > 0 the longest continuation has the best bound, and for
// alpha < 0 the shortest.
double HypothesisPool::Bound(double log_score, int length) const {
  const int at = alpha_ >= 0 ? max_tokens_ : std::min(length + 1, max_tokens_);
  return NormalisedScore(log_score, at, alpha_);
}

bool HypothesisPool::PolicyStops(double best_active) const {
  if (stop_when_full_) return entries_.size() == capacity_;
  const size_t wanted = num_hypotheses_;
  return entries_.size() >= wanted && entries_[wanted - 1].score >= best_active;
}

std::vector<Hypothesis> HypothesisPool::Result(const PathTree& paths) const {
  std::vector<Hypothesis> result;
  for (const Entry& entry : entries_) {
    if (static_cast<int>(result.size()) == num_hypotheses_) break;
    result.push_back({paths.Tokens(entry.path), entry.log_score, entry.score, entry.finished});
  }
  return result;
}

}  // namespace coppice::decoding
