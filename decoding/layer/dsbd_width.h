// Closed forms of DSBD: how many of m drafts are accepted, and the dynamic width that follows.
// docs/algorithms.md 5.1, 5.3 (with errata E2, E3 of the DSBD paper). Pure functions.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "decoding/joint/residual.h"

namespace coppice::decoding {

// alpha_1..alpha_m of 4.2 for the pair (P, Q) of `a`: probability that the j-th draft since the
// last acceptance is accepted. Leaves `a` as P.
std::vector<double> AcceptanceByDraft(Residual* a, int m);
// P(m, 0..m): distribution of the number of acceptances among m drafts, not stopping at W. [m + 1]
std::vector<double> AcceptedCountDistribution(absl::Span<const double> alpha);
// P(at least K of m accepted), K = 0..m, summed from the top. [m + 1]
std::vector<double> AcceptedTail(absl::Span<const double> alpha);
// Wt = largest K with tail[K] >= t - 1e-12; K = 0 always qualifies. 0 < t <= 1.
int WidthForThreshold(absl::Span<const double> tail, double t);

}  // namespace coppice::decoding
