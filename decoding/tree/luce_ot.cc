#include "decoding/tree/luce_ot.h"

#include <algorithm>
#include <utility>

#include "sampling/deterministic_math.h"

namespace coppice::decoding {
namespace {

constexpr double kTiny = 1e-12;        // replaces a mass of 0
constexpr double kFloor = 1e-10;       // smallest weight
constexpr double kLogTimeBegin = -38;  // trapezoid in log t
constexpr double kLogTimeStep = 0.3;
constexpr double kLongestDecay = 40;  // exp(-t w) is negligible beyond t w = 40

// Scales the weights so that the largest is 1.
void Normalise(std::vector<double>* weights) {
  const double largest = *std::max_element(weights->begin(), weights->end());
  for (double& w : *weights) w = std::max(w / largest, kFloor);
}

// n = 2: s(x) = q(x) sum_y q(y) 2 w(x) / (w(x) + w(y)).
std::vector<double> PairSelectionDistribution(absl::Span<const double> q,
                                              absl::Span<const double> w) {
  std::vector<double> s(q.size());
  for (size_t x = 0; x < q.size(); ++x) {
    double sum = 0;
    for (size_t y = 0; y < q.size(); ++y) sum += q[y] * 2 * w[x] / (w[x] + w[y]);
    s[x] = q[x] * sum;
  }
  return s;
}

double Power(double base, int exponent) {
  double product = 1;
  for (int i = 0; i < exponent; ++i) product *= base;
  return product;
}

double SumOfMinima(absl::Span<const double> p, absl::Span<const double> s) {
  double sum = 0;
  for (size_t x = 0; x < p.size(); ++x) sum += std::min(p[x], s[x]);
  return sum;
}

}  // namespace

std::vector<double> LuceSelectionDistribution(absl::Span<const double> q,
                                              absl::Span<const double> weights, int n) {
  if (n == 1) return {q.begin(), q.end()};
  if (n == 2) return PairSelectionDistribution(q, weights);
  // n q(x) w(x) Int exp(-t w(x)) M(t)^(n-1) dt with dt = t d(log t).
  const double smallest = *std::min_element(weights.begin(), weights.end());
  const double end = sampling::Log(kLongestDecay / smallest);
  std::vector<double> integral(q.size(), 0.0), decay(q.size());
  for (double log_t = kLogTimeBegin; log_t <= end; log_t += kLogTimeStep) {
    const double t = sampling::Exp(log_t);
    double m = 0;
    for (size_t y = 0; y < q.size(); ++y) {
      decay[y] = sampling::Exp(-t * weights[y]);
      m += q[y] * decay[y];
    }
    const double factor = Power(m, n - 1) * t * kLogTimeStep;
    for (size_t x = 0; x < q.size(); ++x) integral[x] += decay[x] * factor;
  }
  std::vector<double> s(q.size());
  for (size_t x = 0; x < q.size(); ++x) s[x] = n * q[x] * weights[x] * integral[x];
  return s;
}

LuceWeights FindLuceWeights(absl::Span<const double> p, absl::Span<const double> q, int n,
                            int rounds) {
  std::vector<double> w(q.size());
  for (size_t x = 0; x < q.size(); ++x) {
    // A token of less mass is never drafted, and its selection mass is close to 0 for any weight.
    w[x] = q[x] > sampling::kLeastMass ? std::max(p[x], kTiny) / q[x] : 0;
  }
  Normalise(&w);
  LuceWeights best;
  for (int round = 0; round < rounds; ++round) {
    std::vector<double> s = LuceSelectionDistribution(q, w, n);
    const double acceptance = SumOfMinima(p, s);
    std::vector<double> next(w.size());
    for (size_t x = 0; x < w.size(); ++x) next[x] = w[x] * (p[x] + kTiny) / (s[x] + kTiny);
    Normalise(&next);
    if (best.weights.empty() || acceptance > best.acceptance) {
      best = {std::move(w), std::move(s), acceptance};
    }
    w = std::move(next);
  }
  return best;
}

NodeVerdict VerifyLuceOt(const NodeInput& input, ChoiceSource* choices) {
  const sampling::Distribution& q = *input.q;
  std::vector<double> p_mass, q_mass;
  for (int i = 0; i < q.size(); ++i) {
    p_mass.push_back(sampling::Exp(LogMass(*input.p, {0, q.tokens[i]})));
    q_mass.push_back(sampling::Exp(q.log_probs[i]));
  }
  const LuceWeights luce = FindLuceWeights(p_mass, q_mass, static_cast<int>(input.drafts.size()));
  sampling::Distribution selection;  // s
  std::vector<double> log_weights(input.drafts.size());
  for (int i = 0; i < q.size(); ++i) {
    selection.tokens.push_back(q.tokens[i]);
    selection.log_probs.push_back(sampling::Log(luce.selection[i]));
  }
  for (int j = 0; j < log_weights.size(); ++j) {
    log_weights[j] = sampling::Log(luce.weights[FindToken(q, input.drafts[j])]);
  }
  NodeTrial trial(input, selection, choices);
  const Selection selected = choices->Select(LayerHash(*input.p), log_weights);
  trial.CountMargin(selected.margin);
  if (trial.Accepts(selected.index)) return trial.Accepted(selected.index);
  trial.Reject();
  return trial.DrawRest();
}

}  // namespace coppice::decoding
