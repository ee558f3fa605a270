#include "decoding/law/layer_law.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "sampling/deterministic_math.h"
#include "sampling/warp.h"

namespace coppice::decoding {
namespace {

constexpr double kNoMass = -std::numeric_limits<double>::infinity();

}  // namespace

int FindToken(const sampling::Distribution& row, TokenId token) {
  const auto it = std::lower_bound(row.tokens.begin(), row.tokens.end(), token);
  return it != row.tokens.end() && *it == token ? static_cast<int>(it - row.tokens.begin()) : -1;
}

double LogMass(const LayerLaw& law, Entry entry) {
  if (entry.beam < 0) return kNoMass;
  const WeightedRow& row = law.rows[entry.beam];
  const auto it = std::lower_bound(row.changed.begin(), row.changed.end(), entry.token);
  if (it != row.changed.end() && *it == entry.token)
    return row.changed_log_mass[it - row.changed.begin()];
  if (row.whole != nullptr) return row.log_weight + row.whole->LogProb(entry.token);
  const int position = row.sparse == nullptr ? -1 : FindToken(*row.sparse, entry.token);
  return position < 0 ? kNoMass : row.log_weight + row.sparse->log_probs[position];
}

void RemoveTokens(int beam, absl::Span<const TokenId> tokens, LayerLaw* law) {
  WeightedRow& row = law->rows[beam];
  bool more_changed = false;
  for (TokenId token : tokens) {
    if (LogMass(*law, {beam, token}) == kNoMass) continue;
    const auto place = std::lower_bound(row.changed.begin(), row.changed.end(), token);
    const auto mass = row.changed_log_mass.begin() + (place - row.changed.begin());
    if (place != row.changed.end() && *place == token) {
      *mass = kNoMass;
      continue;
    }
    row.changed_log_mass.insert(mass, kNoMass);
    row.changed.insert(place, token);
    more_changed = true;
  }
  if (!more_changed || row.whole == nullptr) return;
  row.unchanged = std::make_shared<sampling::RowWithout>(*row.whole, row.changed);
}

void RemoveEntry(Entry entry, LayerLaw* law) { RemoveTokens(entry.beam, {entry.token}, law); }

bool HasMass(const LayerLaw& law) {
  return std::any_of(law.rows.begin(), law.rows.end(), [](const WeightedRow& row) {
    if (row.log_weight == kNoMass) return false;
    for (double mass : row.changed_log_mass) {
      if (mass > kNoMass) return true;
    }
    if (row.sparse != nullptr) return row.changed.size() < row.sparse->size();
    if (row.whole == nullptr) return false;
    return row.unchanged == nullptr || row.unchanged->log_mass() > kNoMass;
  });
}

std::vector<EntryMass> ListEntries(const LayerLaw& law) {
  std::vector<EntryMass> entries;
  for (int beam = 0; beam < law.rows.size(); ++beam) {
    const WeightedRow& row = law.rows[beam];
    const int listed = row.whole != nullptr    ? static_cast<int>(row.whole->values().size())
                       : row.sparse != nullptr ? static_cast<int>(row.sparse->size())
                                               : 0;
    for (int i = 0; i < listed; ++i) {
      const Entry entry{beam,
                        row.whole != nullptr ? static_cast<TokenId>(i) : row.sparse->tokens[i]};
      const double log_mass = LogMass(law, entry);
      if (log_mass != kNoMass) entries.push_back({entry, log_mass});
    }
  }
  return entries;
}

LayerLaw MakeLayerLaw(absl::Span<const LawBeam> beams) {
  std::vector<double> logs;
  for (const LawBeam& beam : beams) {
    logs.push_back(beam.score + (beam.multiplicity == 1 ? 0.0 : sampling::Log(beam.multiplicity)));
  }
  const double total = sampling::LogSumExp(logs);
  LayerLaw law;
  for (int b = 0; b < beams.size(); ++b) {
    const LawBeam& beam = beams[b];
    WeightedRow row;
    row.hash = beam.hash;
    row.log_weight = logs[b] - total;
    row.sparse = beam.sparse;
    if (beam.warped != nullptr) {
      row.whole = beam.warped->whole() ? beam.warped : nullptr;
      row.sparse = beam.warped->whole() ? nullptr : &beam.warped->sparse();
    }
    law.rows.push_back(std::move(row));
  }
  return law;
}

uint64_t LayerHash(const LayerLaw& law) {
  uint64_t sum = 0;
  for (const WeightedRow& row : law.rows) sum += row.hash;
  return sum;
}

}  // namespace coppice::decoding
