#include "decoding/choice_source.h"

#include <cmath>
#include <limits>

#include "base/deterministic_math.h"

namespace coppice {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

// argmax over the canonical entries of log mass + Gumbel; the noise of (b, v) uses h'(b) and index
// v.
Draw SeededChoices::Choose(Domain domain, uint32_t slot, const LayerLaw& law) {
  Draw draw;
  double best = -kInfinity;
  double second = -kInfinity;
  for (const EntryMass& mass : ListEntries(law)) {
    const uint64_t hash = EpochHash(law.rows[mass.entry.beam].hash, epoch_);
    const double key = mass.log_mass + Gumbel(seed_, domain, hash, slot, mass.entry.token);
    if (key > best) {
      second = best;
      best = key;
      draw.entry = mass.entry;
    } else if (key > second) {
      second = key;
    }
  }
  draw.margin = best - second;
  return draw;
}

Coin SeededChoices::Accept(uint64_t layer_hash, uint32_t slot, double a, double b) {
  const double u = Uniform(seed_, Domain::kAccept, EpochHash(layer_hash, epoch_), slot, 0);
  return {u * b<a, a> 0 ? std::fabs(Log(u * b) - Log(a)) : kInfinity};
}

}  // namespace coppice
