// Acceptance calculators on whole rows: alpha* of sequential draws without replacement.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "lab/theory/optimal_acceptance.h"
#include "sampling/deterministic_math.h"

namespace coppice::bench {
namespace {

// Softmax of Gaussian logits (sd 3), and of the same logits plus noise (sd 0.7).
struct Pair {
  std::vector<double> p, q;
};

void Normalise(std::vector<double>* row) {
  double sum = 0;
  for (double value : *row) sum += value;
  for (double& value : *row) value /= sum;
}

Pair RandomPair(int vocab) {
  std::mt19937 bits(1);
  std::normal_distribution<double> target(0, 3), noise(0, 0.7);
  Pair pair;
  for (int v = 0; v < vocab; ++v) {
    const double logit = target(bits);
    pair.p.push_back(sampling::Exp(logit));
    pair.q.push_back(sampling::Exp(logit + noise(bits)));
  }
  Normalise(&pair.p);
  Normalise(&pair.q);
  return pair;
}

// Arguments: vocabulary, n.
void AlphaStarWithoutReplacement(benchmark::State& state) {
  const Pair pair = RandomPair(static_cast<int>(state.range(0)));
  const int n = static_cast<int>(state.range(1));
  double alpha = 0;
  for (auto _ : state) {
    alpha = lab::OptimalAcceptanceWithoutReplacement(pair.p, pair.q, n).alpha;
    benchmark::DoNotOptimize(alpha);
  }
  state.counters["alpha"] = alpha;
}
BENCHMARK(AlphaStarWithoutReplacement)
    ->Args({32000, 3})
    ->Args({131072, 3})
    ->Args({131072, 8})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace coppice::bench
