#include "decoding/layer_law.h"

#include <algorithm>
#include <limits>

#include "base/deterministic_math.h"
#include "decoding/warp.h"

namespace coppice {
namespace {

constexpr double kNoMass = -std::numeric_limits<double>::infinity();

}  // namespace

int FindToken(const Distribution& row, TokenId token) {
  const auto it = std::lower_bound(row.tokens.begin(), row.tokens.end(), token);
  return it != row.tokens.end() && *it == token ? static_cast<int>(it - row.tokens.begin()) : -1;
}

double LogMass(const LayerLaw& law, Entry entry) {
  if (entry.beam < 0) return kNoMass;
  const WeightedRow& row = law.rows[entry.beam];
  if (row.row == nullptr) return kNoMass;
  const auto it = std::lower_bound(row.changed.begin(), row.changed.end(), entry.token);
  if (it != row.changed.end() && *it == entry.token)
    return row.changed_log_mass[it - row.changed.begin()];
  const int position = FindToken(*row.row, entry.token);
  return position < 0 ? kNoMass : row.log_weight + row.row->log_probs[position];
}

std::vector<EntryMass> ListEntries(const LayerLaw& law) {
  std::vector<EntryMass> entries;
  for (int beam = 0; beam < law.rows.size(); ++beam) {
    if (law.rows[beam].row == nullptr) continue;
    for (TokenId token : law.rows[beam].row->tokens) {
      const double log_mass = LogMass(law, {beam, token});
      if (log_mass != kNoMass) entries.push_back({{beam, token}, log_mass});
    }
  }
  return entries;
}

LayerLaw MakeLayerLaw(absl::Span<const LawBeam> beams) {
  std::vector<double> logs;
  for (const LawBeam& beam : beams) {
    logs.push_back(beam.score + (beam.multiplicity == 1 ? 0.0 : Log(beam.multiplicity)));
  }
  const double total = LogSumExp(logs);
  LayerLaw law;
  for (int b = 0; b < beams.size(); ++b)
    law.rows.push_back({beams[b].hash, logs[b] - total, beams[b].row, {}, {}});
  return law;
}

uint64_t LayerHash(const LayerLaw& law) {
  uint64_t sum = 0;
  for (const WeightedRow& row : law.rows) sum += row.hash;
  return sum;
}

}  // namespace coppice
