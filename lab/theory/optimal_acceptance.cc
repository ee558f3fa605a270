#include "lab/theory/optimal_acceptance.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "sampling/deterministic_math.h"

namespace coppice::lab {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kStep = 0.1;  // step of s = log t
constexpr double kNoChance = 1e-16;
constexpr double kLongest = 40;  // exp(-40) is negligible
constexpr double kLatest = 700;  // largest s; exp(s) stays finite
constexpr double kRang = 1e-20;  // Pr[fewer than n have rung] below this counts as 0

// 1 - exp(-x), x >= 0, without cancellation.
double RingProbability(double x) {
  if (x > 0.02) return 1 - sampling::Exp(-x);
  return x * (1 - x / 2 * (1 - x / 3 * (1 - x / 4 * (1 - x / 5 * (1 - x / 6)))));
}

// The quadrature of PrefixDistributionWithoutReplacement. Its nodes are times. Each holds the
// probabilities that exactly 0..n-1 of the tokens added so far have rung.
class Clocks {
 public:
  // smallest: the smallest positive r for which Probability will be called.
  Clocks(int n, double smallest) : n_(n) {
    const double last = std::min(kLatest, sampling::Log(kLongest / smallest));
    // A node has weight r t. By time t, n clocks have rung with probability at most t^n.
    const double first = sampling::Log(kNoChance) / (n + 1);
    for (double s = first; s < last + kStep; s += kStep) time_.push_back(sampling::Exp(s));
    exactly_.assign(time_.size() * n, 0.0);
    for (size_t node = 0; node < time_.size(); ++node) exactly_[node * n] = 1;
    undecided_ = time_.size();
  }

  // Adds a token of rate q > 0 to H.
  void Add(double q) {
    for (size_t node = 0; node < undecided_; ++node) {
      const double rang = RingProbability(q * time_[node]);
      double* exactly = &exactly_[node * n_];
      for (int j = n_ - 1; j > 0; --j) exactly[j] += (exactly[j - 1] - exactly[j]) * rang;
      exactly[0] -= exactly[0] * rang;
    }
    // Pr[fewer than n have rung] decreases with time and with every token.
    while (undecided_ > 0 && Fewer(undecided_ - 1) < kRang) --undecided_;
  }

  // Q(H) for r = q(complement of H) > 0.
  double Probability(double r) const {
    double sum = 0;
    for (size_t node = 0; node < time_.size(); ++node) {
      const double rt = r * time_[node];
      if (rt > kLongest) break;
      const double enough = node < undecided_ ? 1 - Fewer(node) : 1;
      sum += rt * sampling::Exp(-rt) * enough;
    }
    return kStep * sum;
  }

 private:
  double Fewer(size_t node) const {
    const double* exactly = &exactly_[node * n_];
    return std::accumulate(exactly, exactly + n_, 0.0);
  }

  int n_;
  std::vector<double> time_;     // [nodes]
  std::vector<double> exactly_;  // [nodes][n]
  size_t undecided_;             // at nodes from here on, n tokens have rung for certain
};

OptimalAcceptance Scan(absl::Span<const double> p, absl::Span<const TokenId> order,
                       absl::Span<const double> prefix_distribution) {
  OptimalAcceptance best;
  double mass = 0, least = 0;
  for (size_t k = 0; k < order.size(); ++k) {
    mass += p[order[k]];
    const double value = mass - prefix_distribution[k + 1];
    if (value < least) {
      least = value;
      best = {1 + value, static_cast<int>(k) + 1};
    }
  }
  return best;
}

}  // namespace

std::vector<TokenId> RatioOrder(absl::Span<const double> p, absl::Span<const double> q) {
  COPPICE_CHECK(p.size() == q.size());
  std::vector<double> ratio(p.size());
  for (size_t v = 0; v < p.size(); ++v) ratio[v] = q[v] > 0 ? p[v] / q[v] : kInfinity;
  std::vector<TokenId> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
    return ratio[a] != ratio[b] ? ratio[a] < ratio[b] : a < b;
  });
  return order;
}

std::vector<double> PrefixDistributionIid(absl::Span<const double> q,
                                          absl::Span<const TokenId> order, int n) {
  COPPICE_CHECK(n >= 1);
  std::vector<double> distribution = {0.0};
  double mass = 0;
  for (TokenId token : order) {
    mass += q[token];
    double power = 1;
    for (int i = 0; i < n; ++i) power *= mass;
    distribution.push_back(power);
  }
  return distribution;
}

std::vector<double> PrefixDistributionWithoutReplacement(absl::Span<const double> q,
                                                         absl::Span<const TokenId> order, int n) {
  COPPICE_CHECK(n >= 1);
  std::vector<double> outside(order.size() + 1, 0.0);  // r after k tokens, summed from the end
  double smallest = 1;
  int support = 0;
  for (size_t k = order.size(); k-- > 0;) {
    outside[k] = outside[k + 1] + q[order[k]];
    if (outside[k] > 0) smallest = std::min(smallest, outside[k]);
    support += q[order[k]] > 0;
  }
  n = std::min(n, support);
  Clocks clocks(n, smallest);
  std::vector<double> distribution = {0.0};
  int inside = 0;  // tokens of H with q > 0
  for (size_t k = 1; k <= order.size(); ++k) {
    const double rate = q[order[k - 1]];
    if (rate == 0) {
      distribution.push_back(distribution.back());
      continue;
    }
    ++inside;
    if (outside[k] > 0) clocks.Add(rate);
    distribution.push_back(inside < n       ? 0.0
                           : outside[k] > 0 ? clocks.Probability(outside[k])
                                            : 1.0);
  }
  return distribution;
}

OptimalAcceptance OptimalAcceptanceIid(absl::Span<const double> p, absl::Span<const double> q,
                                       int n) {
  const std::vector<TokenId> order = RatioOrder(p, q);
  return Scan(p, order, PrefixDistributionIid(q, order, n));
}

OptimalAcceptance OptimalAcceptanceWithoutReplacement(absl::Span<const double> p,
                                                      absl::Span<const double> q, int n) {
  const std::vector<TokenId> order = RatioOrder(p, q);
  return Scan(p, order, PrefixDistributionWithoutReplacement(q, order, n));
}

}  // namespace coppice::lab
