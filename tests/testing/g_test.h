// G-test of counts, or of a sampler, against an exact distribution (tests/decoding/README.md 3).
// Seeds are fixed. A test that rejects at level 1e-6 is run again with other seeds and fails only
// if it rejects again, so false alarms have probability 1e-12. Used by tests/decoding.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>

#include "tests/testing/long_run.h"

namespace coppice::test {

// Makes the outcome of a seed. Returns false if this run does not count.
template <typename Outcome>
using Sampler = std::function<bool(uint64_t seed, Outcome*)>;

// The number of samples with which a bias of total variation `tv` is detected with power 0.999, in
// a distribution with this many outcomes. The table in 11.3 gives the noncentrality 4 N tv^2;
// 52 + 11.35 sqrt(df) fits it to 1 %. Long runs take ten times as many samples.
inline int SamplesToSee(double tv, size_t outcomes) {
  const double noncentrality = 52 + 11.35 * std::sqrt(static_cast<double>(outcomes) - 1);
  return Samples(static_cast<int>(noncentrality / (4 * tv * tv)));
}

// True if the counts fit the distribution at level 1e-6. G = 2 sum O log(O / E); cells with E < 8
// are pooled.
template <typename Outcome>
bool CountsFit(const std::map<Outcome, double>& distribution,
               const std::map<Outcome, int>& counts) {
  int total = 0;
  for (const auto& [outcome, count] : counts) {
    if (distribution.count(outcome) == 0) return false;
    total += count;
  }
  double g = 0, pooled_expected = 0;
  int pooled = 0, cells = 0;
  const auto add = [&](double observed, double expected) {
    ++cells;
    if (observed > 0) g += 2 * observed * std::log(observed / expected);
  };
  for (const auto& [outcome, probability] : distribution) {
    const auto seen = counts.find(outcome);
    const int observed = seen == counts.end() ? 0 : seen->second;
    const double expected = probability * total;
    if (expected < 8) {
      pooled_expected += expected;
      pooled += observed;
    } else {
      add(observed, expected);
    }
  }
  if (pooled_expected > 0) add(pooled, pooled_expected);
  const double df = cells - 1;  // Wilson-Hilferty quantile at 1 - 1e-6
  const double critical = df * std::pow(1 - 2 / (9 * df) + 4.7534 * std::sqrt(2 / (9 * df)), 3);
  return g < critical;
}

template <typename Outcome>
bool Fits(const std::map<Outcome, double>& distribution, const Sampler<Outcome>& sample, int runs,
          uint64_t first_seed) {
  std::map<Outcome, int> counts;
  int total = 0;
  for (uint64_t seed = first_seed; total < runs; ++seed) {
    Outcome outcome;
    if (!sample(seed, &outcome)) continue;
    if (distribution.count(outcome) == 0) return false;
    ++counts[outcome];
    ++total;
  }
  return CountsFit(distribution, counts);
}

template <typename Outcome>
bool FitsOnceOfTwice(const std::map<Outcome, double>& distribution, const Sampler<Outcome>& sample,
                     int runs) {
  return Fits(distribution, sample, runs, 1) || Fits(distribution, sample, runs, 100000001);
}

}  // namespace coppice::test
