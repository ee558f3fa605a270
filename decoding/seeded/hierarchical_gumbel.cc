#include "decoding/seeded/hierarchical_gumbel.h"

#include <algorithm>
#include <functional>

#include "sampling/deterministic_math.h"
#include "sampling/gumbel_kernels.h"
#include "sampling/rng.h"

namespace coppice::decoding {

double BeamKey(uint64_t seed, uint64_t hash, double log_score) {
  return log_score + sampling::Gumbel(seed, sampling::Domain::kParent, hash, 0, 0);
}

std::vector<double> ChildKeys(uint64_t seed, uint64_t hash, double log_score, double beam_key,
                              absl::Span<const TokenId> tokens, absl::Span<const double> log_probs,
                              size_t count) {
  std::vector<double> keys(tokens.size());
  sampling::GumbelMany({seed, sampling::Domain::kToken, hash, 0}, tokens, keys.data());
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = log_score + log_probs[i] + keys[i];
  const double largest = *std::max_element(keys.begin(), keys.end());
  // The conditioning keeps the order of the noisy scores, except for rounding.
  double least = sampling::kLogZero;
  if (keys.size() > count) {
    std::vector<double> best(count);
    std::partial_sort_copy(keys.begin(), keys.end(), best.begin(), best.end(), std::greater<>());
    least = best.back() - 1e-6;
  }
  for (double& key : keys) {
    if (key < least) {
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
