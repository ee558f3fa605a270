// The last layer of a decode of beams, whose paths hold all layers: as a sampler, and from an exact
// distribution of all layers. Slots are sorted. Used by tests/decoding.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lab/exact/layered_distribution.h"
#include "tests/testing/g_test.h"
#include "tests/testing/named_decode.h"

namespace coppice::test {

inline Sampler<std::vector<uint64_t>> LastLayer(const NamedSetting& setting) {
  return [setting](uint64_t seed, std::vector<uint64_t>* outcome) {
    NamedSetting seeded = setting;
    seeded.params.seed = seed;
    *outcome = RunNamed(seeded).last_layer;
    std::sort(outcome->begin(), outcome->end());
    return true;
  };
}

// In distribution, each layer is its width and then its outputs.
inline ExactDistribution OfLastLayer(const ExactDistribution& distribution) {
  ExactDistribution last;
  for (const auto& [outcome, mass] : distribution) {
    size_t at = 0;
    while (at + 1 + outcome[at] < outcome.size()) at += 1 + outcome[at];
    std::vector<uint64_t> layer(outcome.begin() + at + 1, outcome.end());
    std::sort(layer.begin(), layer.end());
    last[layer] += mass;
  }
  return last;
}

// The last layer of beam sampling, by its definition, with the rows of `target`.
inline ExactDistribution LastLayerDistribution(const decoding::DecodingParams& params,
                                               const LogProbsOf& target) {
  LayeredSetting closed;
  closed.params = params;
  closed.target = target;
  return OfLastLayer(
      ClosedFixedWidthDistribution(closed, params.kind == sampling::DecodingKind::kBeamSampling));
}

// Whether samples of the last layer follow the distribution, at the level of FitsOnceOfTwice.
inline bool LastLayerFits(const NamedSetting& setting, const ExactDistribution& distribution,
                          double bias) {
  return FitsOnceOfTwice(distribution, LastLayer(setting), SamplesToSee(bias, distribution.size()));
}

}  // namespace coppice::test
