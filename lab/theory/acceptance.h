// Acceptance in closed form (docs/algorithms.md 7): how often the single-position verifiers of
// 4.1-4.5 and 4.8 emit one of their n drafts. For K-SEQ see tree/k_seq.h, whose verifier needs it;
// for a DSBD layer layer/dsbd_width.h; for the optimum optimal_acceptance.h. Called by coppice-lab
// and by tests. Pure functions.
//
// Rows are dense: p, q f64 [V], each summing to 1; token = index. n >= 1 drafts.
#pragma once

#include "absl/types/span.h"

namespace coppice::lab {

// 4.1, one draft: sum of min(p, q).
double Overlap(absl::Span<const double> p, absl::Span<const double> q);

// 4.2 with replacement: 1 - prod (1 - alpha_j), alpha_j = sum min(p_j, q), p_{j+1} = res(p_j, q).
double AcceptanceRrsIid(absl::Span<const double> p, absl::Span<const double> q, int n);

// 4.4, which is optimal for its draft distribution, and 4.5 (SpecHub) at n = 2: the n - 1 most
// likely tokens of q and one drawn from the rest.
double AcceptanceGreedy(absl::Span<const double> p, absl::Span<const double> q, int n);

// 4.8, n drafts iid: sum of min(p, s) at the weights that the verifier uses.
double AcceptanceLuceOt(absl::Span<const double> p, absl::Span<const double> q, int n);

}  // namespace coppice::lab
