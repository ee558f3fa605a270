// How often the single-position verifiers of docs/algorithms.md 4.1-4.5 and 4.8 emit one of their n
// drafts, in closed form (section 7). The optimum they are held against is in optimal_acceptance.h;
// a DSBD layer's is in dsbd_width.h. Called by coppice-lab and by tests. Pure functions.
//
// Rows are dense: p, q f64 [V], each summing to 1; token = index. n >= 1 drafts.
#pragma once

#include "absl/types/span.h"

namespace coppice {

// 4.1, one draft: sum of min(p, q).
double Overlap(absl::Span<const double> p, absl::Span<const double> q);

// 4.2 with replacement: 1 - prod (1 - alpha_j), alpha_j = sum min(p_j, q), p_{j+1} = res(p_j, q).
double AcceptanceRrsIid(absl::Span<const double> p, absl::Span<const double> q, int n);

// 4.3: the root rho of 1 - (1 - beta)^n - rho beta and what follows from it. `p` and `q` may list
// any set of tokens that contains the shared support.
struct KSeqAcceptance {
  double rho = 1;         // in [1, n], the upper end of the last bracket
  double beta = 0;        // sum of min(p / rho, q)
  double acceptance = 0;  // 1 - (1 - beta)^n
};
KSeqAcceptance AcceptanceKSeq(absl::Span<const double> p, absl::Span<const double> q, int n);

// 4.4, which is optimal for its draft law, and 4.5 (SpecHub) at n = 2: the n - 1 most likely tokens
// of q and one drawn from the rest.
double AcceptanceGreedy(absl::Span<const double> p, absl::Span<const double> q, int n);

// 4.8, n drafts iid: sum of min(p, s) at the weights that the verifier finds.
double AcceptanceLuceOt(absl::Span<const double> p, absl::Span<const double> q, int n);

}  // namespace coppice
