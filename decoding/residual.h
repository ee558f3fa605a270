// What is left of the target's layer law P after rejected drafts: a of ALGORITHMS.md 5.1, a <- res(a, Q). Q is sparse
// (at most draft_support entries a beam), so only the entries of both are stored; everywhere else a is P times one
// factor. A rejection costs O(entries of Q), not O(entries of P). Thread-compatible; refers to P and Q.
#pragma once

#include <vector>

#include "decoding/layer_law.h"

namespace coppice {

class Residual {
 public:
  // q has a row for every row of p (same beams; row == nullptr: nothing proposed after that beam); its masses may sum to
  // less than 1 (rule E). Both must outlive this.
  Residual(const LayerLaw& p, const LayerLaw& q);

  double Target(Entry entry) const;    // a(entry)
  double Proposal(Entry entry) const;  // Q(entry)
  double Overlap() const;              // sum of min(a, Q): acceptance probability of the next draft
  void Reset();                        // a = P
  // a = res(a, Q). Where the positive part has mass <= 1e-14 it is undefined and a stays (section 0).
  void Reject();
  LayerLaw Law() const;                // a, for drawing

 private:
  struct Shared {  // an entry with P > 0 and Q > 0, canonical order
    Entry entry;
    double p, q, a;
  };
  const Shared* Find(Entry entry) const;

  const LayerLaw& p_;
  const LayerLaw& q_;
  std::vector<Shared> shared_;
  double outside_ = 0;  // P's mass on entries that Q does not propose
  double factor_ = 1;   // a = factor * P outside
};

}  // namespace coppice
