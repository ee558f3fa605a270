#include "decoding/seeded/hierarchical_gumbel.h"

#include <algorithm>
#include <functional>

#include "sampling/deterministic_math.h"
#include "sampling/gumbel_kernels.h"
#include "sampling/rng.h"

namespace coppice::decoding {

namespace {

// A bound on noisy scores: the key of a child whose noisy score is lower is below `least`. It is
// below the noisy score whose key is `least`, by more than rounding. largest: of the noisy scores.
double LeastNoisyScore(double least, double beam_key, double largest) {
  if (least == sampling::kLogZero || least >= beam_key) return sampling::kLogZero;
  // exp(-key) = exp(-score) + exp(-beam_key) - exp(-largest), here times exp(least).
  const double more = least - largest;
  if (more > 600) return largest - 1e-6;  // the others are negligible beside it
  const double sum = 1 - sampling::Exp(least - beam_key) + sampling::Exp(more);
  return least - sampling::Log(sum * (1 + 1e-9) + 1e-12) - 1e-6;
}

}  // namespace

double BeamKey(uint64_t seed, uint64_t hash, double log_score) {
  return log_score + sampling::Gumbel(seed, sampling::Domain::kParent, hash, 0, 0);
}

std::vector<double> ChildKeys(uint64_t seed, uint64_t hash, double log_score, double beam_key,
                              absl::Span<const TokenId> tokens, absl::Span<const double> log_probs,
                              size_t count, double least) {
  std::vector<double> keys(tokens.size());
  sampling::GumbelMany({seed, sampling::Domain::kToken, hash, 0}, tokens, keys.data());
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = log_score + log_probs[i] + keys[i];
  const double largest = *std::max_element(keys.begin(), keys.end());
  // The conditioning keeps the order of the noisy scores, except for rounding.
  double least_score = LeastNoisyScore(least, beam_key, largest);
  std::vector<double> best;
  for (const double key : keys) {
    if (key >= least_score) best.push_back(key);
  }
  if (best.size() > count) {
    std::nth_element(best.begin(), best.begin() + (count - 1), best.end(), std::greater<>());
    least_score = best[count - 1] - 1e-6;
  }
  for (double& key : keys) {
    if (key < least_score) {
      key = sampling::kLogZero;
      continue;
    }
    if (key == largest) {
      key = beam_key;
      continue;
    }
    const double t = beam_key - key + sampling::Log1p(-sampling::Exp(key - largest));
    key = beam_key - std::max(0.0, t) - sampling::Log1p(sampling::Exp(t < 0 ? t : -t));
  }
  return keys;
}

}  // namespace coppice::decoding
