#include "decoding/joint/layer_distribution.h"

#include <algorithm>
#include <utility>

#include "sampling/deterministic_math.h"
#include "sampling/logits_processing.h"

namespace coppice::decoding {
int FindToken(const sampling::Distribution& row, TokenId token) {
  const auto it = std::lower_bound(row.tokens.begin(), row.tokens.end(), token);
  return it != row.tokens.end() && *it == token ? static_cast<int>(it - row.tokens.begin()) : -1;
}

double LogMass(const LayerDistribution& distribution, Entry entry) {
  if (entry.beam < 0) return sampling::kLogZero;
  const WeightedRow& row = distribution.rows[entry.beam];
  const auto it = std::lower_bound(row.changed.begin(), row.changed.end(), entry.token);
  if (it != row.changed.end() && *it == entry.token)
    return row.changed_log_mass[it - row.changed.begin()];
  if (row.whole != nullptr) return row.log_weight + row.whole->LogProb(entry.token);
  const int position = row.sparse == nullptr ? -1 : FindToken(*row.sparse, entry.token);
  return position < 0 ? sampling::kLogZero : row.log_weight + row.sparse->log_probs[position];
}

void RemoveTokens(int beam, absl::Span<const TokenId> tokens, LayerDistribution* distribution) {
  WeightedRow& row = distribution->rows[beam];
  bool more_changed = false;
  for (TokenId token : tokens) {
    if (LogMass(*distribution, {beam, token}) == sampling::kLogZero) continue;
    const auto place = std::lower_bound(row.changed.begin(), row.changed.end(), token);
    const auto mass = row.changed_log_mass.begin() + (place - row.changed.begin());
    if (place != row.changed.end() && *place == token) {
      *mass = sampling::kLogZero;
      continue;
    }
    row.changed_log_mass.insert(mass, sampling::kLogZero);
    row.changed.insert(place, token);
    more_changed = true;
  }
  if (!more_changed || row.whole == nullptr) return;
  row.unchanged = std::make_shared<sampling::RowWithout>(*row.whole, row.changed);
}

void RemoveEntry(Entry entry, LayerDistribution* distribution) {
  RemoveTokens(entry.beam, {entry.token}, distribution);
}

bool HasMass(const LayerDistribution& distribution) {
  return std::any_of(
      distribution.rows.begin(), distribution.rows.end(), [](const WeightedRow& row) {
        if (row.log_weight == sampling::kLogZero) return false;
        for (double mass : row.changed_log_mass) {
          if (mass > sampling::kLogZero) return true;
        }
        if (row.sparse != nullptr) return row.changed.size() < row.sparse->size();
        if (row.whole == nullptr) return false;
        return row.unchanged == nullptr || row.unchanged->log_mass() > sampling::kLogZero;
      });
}

std::vector<EntryMass> ListEntries(const LayerDistribution& distribution) {
  std::vector<EntryMass> entries;
  for (int beam = 0; beam < distribution.rows.size(); ++beam) {
    const WeightedRow& row = distribution.rows[beam];
    const int listed = row.whole != nullptr    ? static_cast<int>(row.whole->values().size())
                       : row.sparse != nullptr ? static_cast<int>(row.sparse->size())
                                               : 0;
    for (int i = 0; i < listed; ++i) {
      const Entry entry{beam,
                        row.whole != nullptr ? static_cast<TokenId>(i) : row.sparse->tokens[i]};
      const double log_mass = LogMass(distribution, entry);
      if (log_mass != sampling::kLogZero) entries.push_back({entry, log_mass});
    }
  }
  return entries;
}

LayerDistribution MakeLayerDistribution(absl::Span<const WeightedBeam> beams) {
  std::vector<double> logs;
  for (const WeightedBeam& beam : beams) {
    logs.push_back(beam.score + (beam.multiplicity == 1 ? 0.0 : sampling::Log(beam.multiplicity)));
  }
  const double total = sampling::LogSumExp(logs);
  LayerDistribution distribution;
  for (int b = 0; b < beams.size(); ++b) {
    const WeightedBeam& beam = beams[b];
    WeightedRow row;
    row.hash = beam.hash;
    row.log_weight = logs[b] - total;
    row.sparse = beam.sparse;
    if (beam.processed != nullptr) {
      row.whole = beam.processed->whole() ? beam.processed : nullptr;
      row.sparse = beam.processed->whole() ? nullptr : &beam.processed->sparse();
    }
    distribution.rows.push_back(std::move(row));
  }
  return distribution;
}

uint64_t LayerHash(const LayerDistribution& distribution) {
  uint64_t sum = 0;
  for (const WeightedRow& row : distribution.rows) sum += row.hash;
  return sum;
}

}  // namespace coppice::decoding
