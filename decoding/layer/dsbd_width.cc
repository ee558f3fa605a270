#include "decoding/layer/dsbd_width.h"

namespace coppice::decoding {

std::vector<double> AcceptanceByDraft(Residual* a, int m) {
  a->Reset();
  std::vector<double> alpha;
  for (int j = 0; j < m; ++j) {
    if (j > 0) a->Reject();
    alpha.push_back(a->Overlap());
  }
  a->Reset();
  return alpha;
}

// P(n, 0) = prod_{j<=n} (1 - alpha_j);
// P(n, k) = sum_{i=1}^{n-k+1} alpha_i prod_{j<i} (1 - alpha_j) P(n-i, k-1).
std::vector<double> AcceptedCountDistribution(absl::Span<const double> alpha) {
  const int m = static_cast<int>(alpha.size());
  std::vector<double> first(m + 1, 0.0);     // first[i]: the first acceptance is draft i (1-based)
  std::vector<double> previous(m + 1, 0.0);  // previous[n] = P(n, k - 1)
  double none = 1;
  previous[0] = 1;
  for (int i = 1; i <= m; ++i) {
    first[i] = alpha[i - 1] * none;
    none *= 1 - alpha[i - 1];
    previous[i] = none;
  }
  std::vector<double> distribution = {previous[m]};
  for (int k = 1; k <= m; ++k) {
    std::vector<double> current(m + 1, 0.0);
    for (int n = k; n <= m; ++n) {
      for (int i = 1; i <= n - k + 1; ++i) current[n] += first[i] * previous[n - i];
    }
    distribution.push_back(current[m]);
    previous = current;
  }
  return distribution;
}

std::vector<double> AcceptedTail(absl::Span<const double> alpha) {
  std::vector<double> tail = AcceptedCountDistribution(alpha);
  for (int k = static_cast<int>(tail.size()) - 2; k >= 0; --k) tail[k] += tail[k + 1];
  return tail;
}

int WidthForThreshold(absl::Span<const double> tail, double t) {
  int width = 0;
  for (int k = 1; k < tail.size(); ++k) {
    if (tail[k] >= t - 1e-12) width = k;
  }
  return width;
}

}  // namespace coppice::decoding
