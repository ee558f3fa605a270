// K-SEQ (SpecTr): n iid drafts of a node are tested without memory against p / rho,
// docs/algorithms.md 4.3 with erratum E21 (the residual). Law: the target's row. Called by
// decoding/tree_decoder.h; the methods k_seq (a tree of iid children) and spectr (iid sequences)
// use it. Pure but for the ChoiceSource.
#pragma once

#include "decoding/node_rule.h"

namespace coppice {

// rho in [1, n] of 4.3 for n drafts from q: the upper end of the bracket around the root.
double KSeqRho(const LayerLaw& p, const Distribution& q, int n);

NodeVerdict VerifyKSeq(const NodeInput& input, ChoiceSource* choices);

}  // namespace coppice
