#include "decoding/joint/choice_source.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "sampling/deterministic_math.h"
#include "sampling/gumbel_kernels.h"

namespace coppice::decoding {
namespace {

// Slot in domain ACCEPT, above that of every draft's coin.
constexpr uint32_t kSelectionSlot = 0x800000;

// The best and the second best key so far. Entries arrive in any order. Ties go to the entry that
// comes first in canonical order.
struct Race {
  Entry entry;
  double best = -sampling::kInfinity;
  double second = -sampling::kInfinity;

  void Offer(Entry candidate, double key) {
    const bool before = candidate.beam < entry.beam ||
                        (candidate.beam == entry.beam && candidate.token < entry.token);
    if (key > best || (key == best && key > -sampling::kInfinity && before)) {
      second = best;
      best = key;
      entry = candidate;
    } else if (key > second) {
      second = key;
    }
  }
};

// log mass + noise of the listed entries.
std::vector<double> ListedKeys(const std::vector<TokenId>& tokens,
                               const std::vector<double>& log_mass, double log_weight,
                               const sampling::NoiseKey& noise_key) {
  std::vector<double> keys(tokens.size());
  sampling::GumbelMany(noise_key, tokens, keys.data());
  for (int i = 0; i < tokens.size(); ++i) keys[i] = log_weight + log_mass[i] + keys[i];
  return keys;
}

// [row.sparse->size()]
std::vector<double> SparseKeys(const WeightedRow& row, const sampling::NoiseKey& noise_key) {
  if (row.changed.empty())
    return ListedKeys(row.sparse->tokens, row.sparse->log_probs, row.log_weight, noise_key);
  std::vector<double> log_mass = row.sparse->log_probs;
  int next = 0;
  for (int i = 0; i < log_mass.size(); ++i) {
    const bool is_changed = next < row.changed.size() && row.changed[next] == row.sparse->tokens[i];
    log_mass[i] = is_changed ? row.changed_log_mass[next++] : row.log_weight + log_mass[i];
  }
  return ListedKeys(row.sparse->tokens, log_mass, 0.0, noise_key);
}

void OfferListed(int beam, const std::vector<TokenId>& tokens, const std::vector<double>& keys,
                 Race* race) {
  for (int i = 0; i < tokens.size(); ++i) race->Offer({beam, tokens[i]}, keys[i]);
}

// The pruned kernel runs the race of a whole row. It reports margins only up to kMarginCap; larger
// ones do not matter.
void RaceWhole(int beam, const WeightedRow& row, const sampling::NoiseKey& noise_key, Race* race) {
  OfferListed(beam, row.changed, ListedKeys(row.changed, row.changed_log_mass, 0.0, noise_key),
              race);
  if (row.unchanged != nullptr && row.unchanged->log_mass() == -sampling::kInfinity) return;
  const sampling::NoisyWinner winner =
      row.unchanged != nullptr
          ? row.unchanged->DrawToken(noise_key)
          : sampling::ArgmaxWithNoise(row.whole->values(), row.whole->weights(),
                                      row.whole->log_sum(), noise_key);
  const double key = row.log_weight + row.whole->LogProb(winner.token) +
                     sampling::Gumbel(noise_key.seed, noise_key.domain, noise_key.hash,
                                      noise_key.slot, winner.token);
  const double before = race->best;
  race->Offer({beam, winner.token}, key);
  if (key > before && key - winner.margin > race->second) race->second = key - winner.margin;
}

// Offers the entries of a row. Of a whole row, offers only those that can be best or second best.
void RaceRow(int beam, const WeightedRow& row, const sampling::NoiseKey& noise_key, Race* race) {
  if (row.whole != nullptr) {
    RaceWhole(beam, row, noise_key, race);
  } else if (row.sparse != nullptr) {
    OfferListed(beam, row.sparse->tokens, SparseKeys(row, noise_key), race);
  }
}

}  // namespace

std::vector<Entry> ChoiceSource::ChooseDistinct(sampling::Domain domain, uint32_t slot,
                                                const LayerDistribution& distribution, int count) {
  LayerDistribution left = distribution;
  std::vector<Entry> drawn;
  while (drawn.size() < count && HasMass(left)) {
    drawn.push_back(Choose(domain, slot, left).entry);
    RemoveEntry(drawn.back(), &left);
  }
  return drawn;
}

// argmax over the entries, in canonical order, of log mass + Gumbel. The noise of (b, v) uses h'(b)
// and index v.
Draw SeededChoices::Choose(sampling::Domain domain, uint32_t slot,
                           const LayerDistribution& distribution) {
  Race race;
  for (int beam = 0; beam < distribution.rows.size(); ++beam) {
    const WeightedRow& row = distribution.rows[beam];
    RaceRow(beam, row, {seed_, domain, NoiseHash(domain, row.hash), slot}, &race);
  }
  COPPICE_CHECK(race.entry.beam >= 0);
  return {race.entry, race.best - race.second};
}

std::vector<Entry> SeededChoices::ChooseDistinct(sampling::Domain domain, uint32_t slot,
                                                 const LayerDistribution& distribution, int count) {
  const bool listed = std::all_of(distribution.rows.begin(), distribution.rows.end(),
                                  [](const WeightedRow& row) { return row.whole == nullptr; });
  return listed ? LargestOfListed(domain, slot, distribution, count)
                : LargestOneByOne(domain, slot, distribution, count);
}

std::vector<Entry> SeededChoices::LargestOfListed(sampling::Domain domain, uint32_t slot,
                                                  const LayerDistribution& distribution,
                                                  int count) const {
  struct Candidate {
    double key;
    Entry entry;
  };
  std::vector<Candidate> candidates;  // canonical order
  for (int beam = 0; beam < distribution.rows.size(); ++beam) {
    const WeightedRow& row = distribution.rows[beam];
    if (row.sparse == nullptr) continue;
    const std::vector<double> keys =
        SparseKeys(row, {seed_, domain, NoiseHash(domain, row.hash), slot});
    for (int i = 0; i < keys.size(); ++i) {
      if (keys[i] > -sampling::kInfinity)
        candidates.push_back({keys[i], {beam, row.sparse->tokens[i]}});
    }
  }
  std::vector<int> order(candidates.size());
  for (int i = 0; i < order.size(); ++i) order[i] = i;
  const int kept = std::min(count, static_cast<int>(order.size()));
  std::partial_sort(order.begin(), order.begin() + kept, order.end(), [&](int a, int b) {
    return candidates[a].key != candidates[b].key ? candidates[a].key > candidates[b].key : a < b;
  });
  std::vector<Entry> drawn;
  drawn.reserve(kept);
  for (int i = 0; i < kept; ++i) drawn.push_back(candidates[order[i]].entry);
  return drawn;
}

// A draw only changes the race of its own beam.
std::vector<Entry> SeededChoices::LargestOneByOne(sampling::Domain domain, uint32_t slot,
                                                  LayerDistribution left, int count) const {
  std::vector<Race> races(left.rows.size());
  const auto run = [&](int beam) {
    const WeightedRow& row = left.rows[beam];
    races[beam] = Race();
    RaceRow(beam, row, {seed_, domain, NoiseHash(domain, row.hash), slot}, &races[beam]);
  };
  for (int beam = 0; beam < left.rows.size(); ++beam) run(beam);
  std::vector<Entry> drawn;
  while (drawn.size() < count) {
    const auto winner = std::max_element(
        races.begin(), races.end(), [](const Race& a, const Race& b) { return a.best < b.best; });
    if (winner->best == -sampling::kInfinity) break;
    drawn.push_back(winner->entry);
    RemoveEntry(drawn.back(), &left);
    run(drawn.back().beam);
  }
  return drawn;
}

Coin SeededChoices::Accept(uint64_t layer_hash, uint32_t slot, double a, double b) {
  const double u = sampling::Uniform(seed_, sampling::Domain::kAccept,
                                     sampling::EpochHash(layer_hash, epoch_), slot, 0);
  return {u * b<a, a> 0 ? std::fabs(sampling::Log(u * b) - sampling::Log(a)) : sampling::kInfinity};
}

// argmax over the drafts of log weight + Gumbel(ACCEPT, h', 0x800000 + j, 0). On ties, the first.
Selection SeededChoices::Select(uint64_t layer_hash, absl::Span<const double> log_weights) {
  Selection selection;
  double best = -sampling::kInfinity, second = -sampling::kInfinity;
  for (int j = 0; j < log_weights.size(); ++j) {
    const double key = log_weights[j] + sampling::Gumbel(seed_, sampling::Domain::kAccept,
                                                         sampling::EpochHash(layer_hash, epoch_),
                                                         kSelectionSlot + j, 0);
    if (key > best) {
      second = best;
      best = key;
      selection.index = j;
    } else if (key > second) {
      second = key;
    }
  }
  selection.margin = best - second;
  return selection;
}

}  // namespace coppice::decoding
