// Exact distributions of beam sampling, computed as products of p_beam (docs/algorithms.md 3.3,
// 3.4). They are the reference for every enumerated output distribution. Used by tests/decoding and
// lab/golden.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <vector>

#include "decoding/joint/layer_distribution.h"
#include "sampling/deterministic_math.h"

namespace coppice::test {

// The test chooses the numbers that describe an outcome. An outcome that is not in the map has
// probability 0.
using ExactDistribution = std::map<std::vector<uint64_t>, double>;

inline double TotalVariation(const ExactDistribution& a, const ExactDistribution& b) {
  double sum = 0;
  for (const auto& [outcome, mass] : a)
    sum += std::abs(mass - (b.count(outcome) ? b.at(outcome) : 0.0));
  for (const auto& [outcome, mass] : b) sum += a.count(outcome) ? 0.0 : mass;
  return sum / 2;
}

inline double LargestDifference(const ExactDistribution& a, const ExactDistribution& b) {
  double largest = 0;
  for (const auto& [outcome, mass] : a) {
    largest = std::max(largest, std::abs(mass - (b.count(outcome) ? b.at(outcome) : 0.0)));
  }
  for (const auto& [outcome, mass] : b) largest = std::max(largest, a.count(outcome) ? 0.0 : mass);
  return largest;
}

// Masses over the flat space beam * vocab + token.
inline std::vector<double> FlatMass(const decoding::LayerDistribution& distribution, int vocab) {
  std::vector<double> flat(distribution.rows.size() * vocab, 0.0);
  for (const decoding::EntryMass& entry : decoding::ListEntries(distribution)) {
    flat[entry.entry.beam * vocab + entry.entry.token] = sampling::Exp(entry.log_mass);
  }
  return flat;
}

// Calls visit(entries, probability) for every ordered list of `width` draws from a distribution:
// independent ones (3.3) or sequential ones without replacement (3.4).
using LayerVisit = std::function<void(const std::vector<decoding::Entry>&, double)>;
inline void VisitLayerOutcomes(const std::vector<decoding::EntryMass>& entries, int width,
                               bool with_replacement, const LayerVisit& visit) {
  std::vector<decoding::Entry> drawn;
  const std::function<void(double)> extend = [&](double probability) {
    if (drawn.size() == width) return visit(drawn, probability);
    double left = 0;  // mass of the remaining entries
    const auto gone = [&](const decoding::Entry& entry) {
      return !with_replacement && std::find(drawn.begin(), drawn.end(), entry) != drawn.end();
    };
    for (const decoding::EntryMass& entry : entries)
      left += gone(entry.entry) ? 0.0 : sampling::Exp(entry.log_mass);
    for (const decoding::EntryMass& entry : entries) {
      if (gone(entry.entry)) continue;
      drawn.push_back(entry.entry);
      extend(probability * sampling::Exp(entry.log_mass) / left);
      drawn.pop_back();
    }
  };
  extend(1.0);
}
inline void VisitLayerOutcomes(const decoding::LayerDistribution& distribution, int width,
                               bool with_replacement, const LayerVisit& visit) {
  VisitLayerOutcomes(decoding::ListEntries(distribution), width, with_replacement, visit);
}

}  // namespace coppice::test
