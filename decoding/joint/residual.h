// The rest of the target's layer distribution P after rejected drafts: a of docs/algorithms.md 5.1
// and 5.5, a <- res(a, Q). Q is sparse (at most draft_top_k entries per beam), so only entries of
// both are stored; elsewhere a is P times a common factor. A rejection costs O(entries of Q), not
// O(entries of P). Thread-compatible. Holds references to P and Q.
#pragma once

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "decoding/joint/layer_distribution.h"

namespace coppice::decoding {

class Residual {
 public:
  // For each row of p, q has a sparse row, or none if nothing was proposed. Further rows of q are
  // not read. The masses of q may sum to less than 1 (rule E). Both must outlive this.
  Residual(const LayerDistribution& p, const LayerDistribution& q);
  Residual(const Residual&) = delete;

  double Target(Entry entry) const;    // a(entry)
  double Proposal(Entry entry) const;  // Q(entry)
  double Overlap() const;              // sum of min(a, Q): acceptance probability of the next draft
  // a = P without the removed entries, normalised. Requires HasTarget().
  void Reset();
  double Excess();  // sum of max(0, a - Q)
  // a = res(a, Q). Where the positive part has mass <= 1e-14 it is undefined and a stays
  // (docs/algorithms.md 0).
  void Reject();
  LayerDistribution Normalised() const;  // a, for drawing

  // For draws without replacement (5.5). Removes an entry of Q and divides the rest by `total`, the
  // mass before.
  void RemoveProposal(Entry entry);
  void NormaliseProposal(double total) { proposal_scale_ = 1 / total; }
  // Removes entries of P from the next Reset on; canonical order.
  void RemoveTarget(absl::Span<const Entry> entries);
  // True when enough of P is left.
  bool HasTarget() const { return !target_cut_ || target_mass_ > sampling::kLeastMass; }

 private:
  struct Shared {  // an entry with P > 0 and Q > 0, canonical order
    Entry entry;
    double p, q, a;
  };
  Shared* Find(Entry entry);
  const Shared* Find(Entry entry) const { return const_cast<Residual*>(this)->Find(entry); }
  double ScaledProposal(const Shared& shared) const { return shared.q * proposal_scale_; }
  void AddSharedEntries(int beam);
  std::vector<TokenId> InsideTokens(int beam) const;
  void FindOutside(int beam);
  double OutsideMass();

  const LayerDistribution& p_;
  const LayerDistribution& q_;
  std::vector<Shared> shared_;
  std::vector<int> shared_begin_;  // [beams + 1]
  double proposal_scale_ = 1;
  // P's mass on entries that Q does not propose and that are not removed, and the whole rows
  // restricted to them. Computed when first needed.
  bool outside_known_ = false;
  std::vector<double> outside_;  // [beams]
  std::vector<std::shared_ptr<const sampling::RowWithout>>
      unchanged_;                       // [beams], null for sparse rows
  std::vector<Entry> removed_outside_;  // canonical order
  bool target_cut_ = false;             // some entry of P was removed
  double target_mass_ = 1;              // mass of P that was not removed
  double factor_ = 1;                   // a = factor * P outside
  bool is_target_ = true;               // a is P, bit for bit
};

}  // namespace coppice::decoding
