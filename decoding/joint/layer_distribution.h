// The joint distribution of one layer over entries (beam, token): one weighted row per beam. It is
// P or Q of docs/algorithms.md 5.1, or what is left of P after rejections
// (decoding/joint/residual.h). Verifier and drafter draw from it through
// decoding/joint/choice_source.h. Thread-compatible; refers to rows that must outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "base/types.h"
#include "sampling/distribution.h"
#include "sampling/processed_row.h"
#include "sampling/row_without.h"

namespace coppice::decoding {

// Canonical order: by beam, then by token.
struct Entry {
  // Index of a row of the distribution. -1 in a draft: its parent is no longer a beam.
  int beam = -1;
  TokenId token = -1;
  friend bool operator==(const Entry& a, const Entry& b) {
    return a.beam == b.beam && a.token == b.token;
  }
};

// The entries of one beam. log mass = log_weight + log-probability, except for the changed tokens.
// At most one of `sparse` and `whole` is set; with neither the beam has no entries.
struct WeightedRow {
  uint64_t hash = 0;      // H(beam), without the epoch step
  double log_weight = 0;  // nats
  const sampling::Distribution* sparse = nullptr;
  const sampling::ProcessedRow* whole = nullptr;  // whole->whole()
  std::vector<TokenId> changed;                   // ascending; tokens whose mass is given below
  std::vector<double> changed_log_mass;           // nats; -inf = removed
  std::shared_ptr<const sampling::RowWithout>
      unchanged;  // whole rows with changes: the other tokens
};

struct LayerDistribution {
  std::vector<WeightedRow> rows;  // canonical beam order
};

// Position of `token` in the row, or -1.
int FindToken(const sampling::Distribution& row, TokenId token);
// log mass of an entry; -inf when it is absent.
double LogMass(const LayerDistribution& distribution, Entry entry);
// Sets the mass of these entries to 0; the others keep theirs, so the sum of the masses falls.
// Absent entries stay absent. O(vocab) for a whole row, for any number of tokens.
void RemoveTokens(int beam, absl::Span<const TokenId> tokens, LayerDistribution* distribution);
void RemoveEntry(Entry entry, LayerDistribution* distribution);
// Whether any entry has positive mass.
bool HasMass(const LayerDistribution& distribution);
// All entries of positive mass in canonical order. For tests and small distributions.
struct EntryMass {
  Entry entry;
  double log_mass = 0;
};
std::vector<EntryMass> ListEntries(const LayerDistribution& distribution);

// p_beam of docs/algorithms.md 3.3, multiset semantics: row b has weight exp(score_b) m_b / sum.
struct WeightedBeam {
  uint64_t hash = 0;
  double score = 0;  // ls, nats
  int multiplicity = 1;
  const sampling::Distribution* sparse = nullptr;     // a sparse row, or
  const sampling::ProcessedRow* processed = nullptr;  // a processed row in either form
};
LayerDistribution MakeLayerDistribution(absl::Span<const WeightedBeam> beams);

// h of docs/algorithms.md 2 for draws over a joint layer: the wrapping sum of the hashes of its
// distinct beams.
uint64_t LayerHash(const LayerDistribution& distribution);

}  // namespace coppice::decoding
