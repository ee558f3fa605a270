// What is left of the target's layer law P after rejected drafts: a of ALGORITHMS.md 5.1, a <-
// res(a, Q). Q is sparse (at most draft_support entries a beam), so only the entries of both are
// stored; everywhere else a is P times one factor. A rejection costs O(entries of Q), not O(entries
// of P). Thread-compatible; refers to P and Q.
#pragma once

#include <memory>
#include <vector>

#include "decoding/layer_law.h"

namespace coppice {

class Residual {
 public:
  // q has a sparse row, or none (nothing proposed), for every row of p; its masses may sum to
  // less than 1 (rule E). Both must outlive this.
  Residual(const LayerLaw& p, const LayerLaw& q);
  Residual(const Residual&) = delete;

  double Target(Entry entry) const;    // a(entry)
  double Proposal(Entry entry) const;  // Q(entry)
  double Overlap() const;              // sum of min(a, Q): acceptance probability of the next draft
  void Reset();                        // a = P
  // a = res(a, Q). Where the positive part has mass <= 1e-14 it is undefined and a stays (section
  // 0).
  void Reject();
  LayerLaw Law() const;  // a, for drawing

 private:
  struct Shared {  // an entry with P > 0 and Q > 0, canonical order
    Entry entry;
    double p, q, a;
  };
  const Shared* Find(Entry entry) const;
  void AddSharedEntries(int beam);
  void FindOutside();

  const LayerLaw& p_;
  const LayerLaw& q_;
  std::vector<Shared> shared_;
  std::vector<int> shared_begin_;  // [beams + 1]
  // P's mass on entries that Q does not propose, and the whole rows cut down to them; made by the
  // first rejection.
  bool outside_known_ = false;
  double outside_ = 0;
  std::vector<std::shared_ptr<const RowWithout>> unchanged_;  // [beams], null for sparse rows
  double factor_ = 1;                                         // a = factor * P outside
  bool is_target_ = true;                                     // a is P, bit for bit
};

}  // namespace coppice
