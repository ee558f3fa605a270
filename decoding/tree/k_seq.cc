#include "decoding/tree/k_seq.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "sampling/deterministic_math.h"

namespace coppice::decoding {
namespace {

constexpr int kBisections = 100;

double Beta(absl::Span<const double> p, absl::Span<const double> q, double rho) {
  double sum = 0;
  for (size_t v = 0; v < p.size(); ++v) sum += std::min(p[v] / rho, q[v]);
  return sum;
}

// 1 - (1 - x)^n.
double AtLeastOnce(double x, int n) {
  double none = 1;
  for (int i = 0; i < n; ++i) none *= 1 - x;
  return 1 - none;
}

}  // namespace

KSeqAcceptance AcceptanceKSeq(absl::Span<const double> p, absl::Span<const double> q, int n) {
  COPPICE_CHECK(p.size() == q.size() && n >= 1);
  double low = 1, high = n;
  for (int i = 0; i < kBisections; ++i) {
    const double rho = (low + high) / 2;
    const double beta = Beta(p, q, rho);
    (AtLeastOnce(beta, n) - rho * beta > 0 ? low : high) = rho;
  }
  const double beta = Beta(p, q, high);
  return {high, beta, AtLeastOnce(beta, n)};
}

double KSeqRho(const LayerDistribution& p, const sampling::Distribution& q, int n) {
  std::vector<double> p_mass, q_mass;  // on the support of q; outside, min(p / rho, q) is 0
  for (int i = 0; i < q.size(); ++i) {
    p_mass.push_back(sampling::Exp(LogMass(p, {0, q.tokens[i]})));
    q_mass.push_back(sampling::Exp(q.log_probs[i]));
  }
  return AcceptanceKSeq(p_mass, q_mass, n).rho;
}

// Every draft has its own coin, even a repeated one. The residual is norm(max(0, p - rho q)).
NodeVerdict VerifyKSeq(const NodeInput& input, ChoiceSource* choices) {
  const int n = static_cast<int>(input.drafts.size());
  NodeTrial trial(input, *input.q, choices, KSeqRho(*input.p, *input.q, n));
  for (int j = 0; j < n; ++j) {
    if (trial.Accepts(j)) return trial.Accepted(j);
  }
  trial.Reject();
  return trial.DrawRest();
}

}  // namespace coppice::decoding
