// alpha*: the largest probability with which any verifier can emit one of n drafts, given the
// distribution of the drafts (docs/algorithms.md 7; the multi-draft paper, Theorems 4 and 6, with
// erratum E20). Called by coppice-lab and by tests; not used to decide tokens. Pure functions.
//
// Rows are dense: p, q f64 [V], each summing to 1; token = index.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "base/types.h"

namespace coppice::lab {

// alpha* = 1 + min over k of P(H_k) - Q(H_k), H_k the first k tokens of RatioOrder, Q(H) the
// probability that every draft lies in H.
struct OptimalAcceptance {
  double alpha = 1;
  int prefix = 0;  // the shortest k that attains the minimum
};

// Tokens by q/p descending (p = 0 first, q = 0 last), the lower id on ties. [V]
std::vector<TokenId> RatioOrder(absl::Span<const double> p, absl::Span<const double> q);

// Q(H_k) for k = 0..V along any order of the tokens. n >= 1. [V + 1]
// iid: q(H)^n.
std::vector<double> PrefixDistributionIid(absl::Span<const double> q,
                                          absl::Span<const TokenId> order, int n);
// Sequential sampling without replacement, by exponential clocks: token i rings at rate q_i, the
// drafts are the first n to ring, so
//   Q(H) = Int r exp(-r t) Pr[at least n tokens of H have rung by t] dt,   r = q(complement of H).
// Trapezoid rule in s = log t, step 0.1; error about 1e-14. With more drafts than tokens of q > 0
// the list is the whole support. O(V T n), T about 250 nodes.
std::vector<double> PrefixDistributionWithoutReplacement(absl::Span<const double> q,
                                                         absl::Span<const TokenId> order, int n);

OptimalAcceptance OptimalAcceptanceIid(absl::Span<const double> p, absl::Span<const double> q,
                                       int n);
OptimalAcceptance OptimalAcceptanceWithoutReplacement(absl::Span<const double> p,
                                                      absl::Span<const double> q, int n);

}  // namespace coppice::lab
