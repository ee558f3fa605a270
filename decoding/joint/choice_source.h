// The source of every random decision of a rejection drafter or verifier. In production the draws
// are counter-based (docs/algorithms.md 2); exhaustive tests replay scripts of choices through the
// same interface. One per decoder or drafter. Thread-compatible.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "decoding/joint/layer_distribution.h"
#include "sampling/rng.h"

namespace coppice::decoding {

struct Draw {
  Entry entry;
  double margin = 0;  // nats, winner's key minus runner-up's; infinity when the draw had one entry
};

struct Coin {
  bool accepted = false;
  double margin = 0;  // nats, |log(u b) - log(a)|
};

struct Selection {
  int index = -1;
  double margin = 0;  // nats; infinity when there was one candidate
};

class ChoiceSource {
 public:
  virtual ~ChoiceSource() = default;
  // Called before a round's first decision; epoch = layers committed before the round.
  virtual void BeginRound(uint64_t epoch) = 0;
  // Draws one entry with probability proportional to its mass. The distribution must have an entry
  // of positive mass.
  virtual Draw Choose(sampling::Domain domain, uint32_t slot,
                      const LayerDistribution& distribution) = 0;
  // Draws `count` entries one after the other without replacement; fewer when the distribution has
  // fewer. This implementation calls Choose on the remaining entries each time. All draws use the
  // same slot and so the same noise: seeded, they are the entries of the `count` largest keys.
  virtual std::vector<Entry> ChooseDistinct(sampling::Domain domain, uint32_t slot,
                                            const LayerDistribution& distribution, int count);
  // Accepts with probability min(1, a / b); b > 0.
  virtual Coin Accept(uint64_t layer_hash, uint32_t slot, double a, double b) = 0;
  // Selects one draft of a layer (4.8), with probability proportional to exp(log_weights[j]).
  virtual Selection Select(uint64_t layer_hash, absl::Span<const double> log_weights) = 0;
};

// docs/algorithms.md 2. The domains DRAFT, ACCEPT, RESIDUAL and DIRECT use the epoch step h'. TOKEN
// does not, because draft, target and successive rounds share its noise.
class SeededChoices : public ChoiceSource {
 public:
  explicit SeededChoices(uint64_t seed) : seed_(seed) {}
  void BeginRound(uint64_t epoch) override { epoch_ = epoch; }
  Draw Choose(sampling::Domain domain, uint32_t slot,
              const LayerDistribution& distribution) override;
  // If every row is sparse, computes the noise once for all draws. Otherwise O(vocab) per beam, and
  // again per draw.
  std::vector<Entry> ChooseDistinct(sampling::Domain domain, uint32_t slot,
                                    const LayerDistribution& distribution, int count) override;
  Coin Accept(uint64_t layer_hash, uint32_t slot, double a, double b) override;
  Selection Select(uint64_t layer_hash, absl::Span<const double> log_weights) override;

 private:
  uint64_t NoiseHash(sampling::Domain domain, uint64_t hash) const {
    return domain == sampling::Domain::kToken ? hash : sampling::EpochHash(hash, epoch_);
  }
  // The entries of the `count` largest keys, in decreasing order.
  std::vector<Entry> LargestOfListed(sampling::Domain domain, uint32_t slot,
                                     const LayerDistribution& distribution, int count) const;
  std::vector<Entry> LargestOneByOne(sampling::Domain domain, uint32_t slot, LayerDistribution left,
                                     int count) const;

  uint64_t seed_;
  uint64_t epoch_ = 0;
};

}  // namespace coppice::decoding
