#include "lab/theory/acceptance.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "base/types.h"
#include "decoding/tree/luce_ot.h"

namespace coppice::lab {
namespace {

constexpr double kUndefinedMass = 1e-14;  // docs/algorithms.md 0: a smaller residual is not used

// The `count` most likely tokens of q, ties to the lower id. Fewer if the support has fewer.
std::vector<TokenId> TopOf(absl::Span<const double> q, size_t count) {
  std::vector<TokenId> order(q.size());
  std::iota(order.begin(), order.end(), 0);
  count = std::min(count, order.size());
  std::partial_sort(order.begin(), order.begin() + count, order.end(),
                    [&](TokenId a, TokenId b) { return q[a] != q[b] ? q[a] > q[b] : a < b; });
  return order;
}

}  // namespace

double Overlap(absl::Span<const double> p, absl::Span<const double> q) {
  COPPICE_CHECK(p.size() == q.size());
  double sum = 0;
  for (size_t v = 0; v < p.size(); ++v) sum += std::min(p[v], q[v]);
  return sum;
}

double AcceptanceRrsIid(absl::Span<const double> p, absl::Span<const double> q, int n) {
  std::vector<double> a(p.begin(), p.end());
  double none = 1;
  for (int j = 0; j < n; ++j) {
    none *= 1 - Overlap(a, q);
    double sum = 0;
    for (size_t v = 0; v < a.size(); ++v) sum += std::max(0.0, a[v] - q[v]);
    if (sum <= kUndefinedMass) break;
    for (size_t v = 0; v < a.size(); ++v) a[v] = std::max(0.0, a[v] - q[v]) / sum;
  }
  return 1 - none;
}

double AcceptanceGreedy(absl::Span<const double> p, absl::Span<const double> q, int n) {
  COPPICE_CHECK(p.size() == q.size() && n >= 1);
  const std::vector<TokenId> order = TopOf(q, n - 1);
  const size_t top = std::min(order.size(), static_cast<size_t>(n - 1));
  double accepted = 0, rest = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i >= top) {
      rest += q[order[i]];
    } else if (q[order[i]] > 0) {
      accepted += p[order[i]];
    }
  }
  if (rest <= 0) return accepted;
  for (size_t i = top; i < order.size(); ++i) {
    accepted += std::min(p[order[i]], q[order[i]] / rest);
  }
  return accepted;
}

double AcceptanceLuceOt(absl::Span<const double> p, absl::Span<const double> q, int n) {
  std::vector<double> p_mass, q_mass;  // on the support of q
  for (size_t v = 0; v < q.size(); ++v) {
    if (q[v] <= 0) continue;
    p_mass.push_back(p[v]);
    q_mass.push_back(q[v]);
  }
  return decoding::FindLuceWeights(p_mass, q_mass, n).acceptance;
}

}  // namespace coppice::lab
