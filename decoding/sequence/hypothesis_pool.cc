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
    : capacity_(params.beam_width / params.num_beam_groups),
      num_hypotheses_(params.num_hypotheses),
      wanted_(params.num_beam_groups > 1 ? capacity_ : num_hypotheses_),
      max_tokens_(params.max_tokens),
      alpha_(params.length_penalty),
      min_score_(params.min_score),
      stop_when_full_(params.stop_when_full) {}

void HypothesisPool::Insert(const PathTree& paths, PathId path, double log_score, bool finished,
                            double penalty) {
  if (!inserted_.insert(path).second) return;
  const double score = NormalisedScore(log_score - penalty, paths.length(path), alpha_);
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

bool HypothesisPool::PolicyStops(double best_active, int width) const {
  if (stop_when_full_) return entries_.size() >= static_cast<size_t>(width);
  return entries_.size() >= wanted_ && entries_[wanted_ - 1].score >= best_active;
}

std::vector<Hypothesis> HypothesisPool::BestOf(absl::Span<const HypothesisPool> pools,
                                               const PathTree& paths) {
  std::vector<const Entry*> best;
  for (const HypothesisPool& pool : pools) {
    for (const Entry& entry : pool.entries_) {
      if (pool.Reaches(entry.score)) best.push_back(&entry);
    }
  }
  if (pools.size() > 1) {
    std::stable_sort(best.begin(), best.end(),
                     [](const Entry* a, const Entry* b) { return a->score > b->score; });
  }
  if (best.size() > pools[0].num_hypotheses_) best.resize(pools[0].num_hypotheses_);
  std::vector<Hypothesis> result;
  result.reserve(best.size());
  for (const Entry* entry : best)
    result.push_back({paths.Tokens(entry->path), entry->log_score, entry->score, entry->finished});
  return result;
}

}  // namespace coppice::decoding
