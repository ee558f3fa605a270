// G-test of a sampler against an exact law (ALGORITHMS.md 11.3). Seeds are fixed; a test that
// rejects at 1e-6 is run again with other seeds before it counts, so that a false alarm has level
// 1e-12. Used by tests/decoding.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>

namespace coppice {

// One outcome of a seed; false: the run is not counted.
template <typename Outcome>
using Sampler = std::function<bool(uint64_t seed, Outcome*)>;

// G = 2 sum O log(O / E) with cells of E < 8 pooled; true when the counts fit the law at level
// 1e-6.
template <typename Outcome>
bool Fits(const std::map<Outcome, double>& law, const Sampler<Outcome>& sample, int runs,
          uint64_t first_seed) {
  std::map<Outcome, int> counts;
  int total = 0;
  for (uint64_t seed = first_seed; total < runs; ++seed) {
    Outcome outcome;
    if (!sample(seed, &outcome)) continue;
    if (law.count(outcome) == 0) return false;
    ++counts[outcome];
    ++total;
  }
  double g = 0, pooled_expected = 0;
  int pooled = 0, cells = 0;
  const auto add = [&](double observed, double expected) {
    ++cells;
    if (observed > 0) g += 2 * observed * std::log(observed / expected);
  };
  for (const auto& [outcome, probability] : law) {
    const double expected = probability * total;
    if (expected < 8) {
      pooled_expected += expected;
      pooled += counts[outcome];
    } else {
      add(counts[outcome], expected);
    }
  }
  if (pooled_expected > 0) add(pooled, pooled_expected);
  const double df = cells - 1;  // Wilson-Hilferty quantile at 1 - 1e-6
  const double critical = df * std::pow(1 - 2 / (9 * df) + 4.7534 * std::sqrt(2 / (9 * df)), 3);
  return g < critical;
}

template <typename Outcome>
bool FitsOnceOfTwice(const std::map<Outcome, double>& law, const Sampler<Outcome>& sample,
                     int runs) {
  return Fits(law, sample, runs, 1) || Fits(law, sample, runs, 100000001);
}

}  // namespace coppice
