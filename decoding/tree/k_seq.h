// K-SEQ (SpecTr): tests the n iid drafts of a node independently against p / rho,
// docs/algorithms.md 4.3 with erratum E21 (the residual). Distribution: the target's row. Called by
// decoding/tree/tree_decoder.h; the methods k_seq (a tree of iid children) and spectr (iid
// sequences) use it. Pure except for the ChoiceSource.
#pragma once

#include "absl/types/span.h"
#include "decoding/tree/node_rule.h"

namespace coppice::decoding {

// The root rho of 1 - (1 - beta)^n - rho beta and what follows from it (docs/algorithms.md 7). Rows
// are dense, f64, or list any set of tokens that contains the shared support; n >= 1 drafts.
struct KSeqAcceptance {
  double rho = 1;         // in [1, n], the upper end of the last bracket
  double beta = 0;        // sum of min(p / rho, q)
  double acceptance = 0;  // 1 - (1 - beta)^n
};
KSeqAcceptance AcceptanceKSeq(absl::Span<const double> p, absl::Span<const double> q, int n);

// rho in [1, n] of 4.3 for n drafts from q: the upper end of the bracket around the root.
double KSeqRho(const LayerDistribution& p, const sampling::Distribution& q, int n);

NodeVerdict VerifyKSeq(const NodeInput& input, ChoiceSource* choices);

}  // namespace coppice::decoding
