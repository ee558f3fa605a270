#include "plan/prefix_order.h"

#include <algorithm>
#include <numeric>

namespace coppice {

PrefixOrder OrderByPrefix(const StepPlan& plan) {
  const auto begin = [&](int32_t s) { return plan.table.begin() + plan.table_begin[s]; };
  const auto end = [&](int32_t s) { return plan.table.begin() + plan.table_begin[s + 1]; };
  PrefixOrder order;
  order.segments.resize(plan.segments.size());
  std::iota(order.segments.begin(), order.segments.end(), 0);
  std::sort(order.segments.begin(), order.segments.end(), [&](int32_t a, int32_t b) {
    const auto [in_a, in_b] = std::mismatch(begin(a), end(a), begin(b), end(b));
    if (in_a != end(a) && in_b != end(b)) return *in_a < *in_b;
    const bool shorter = in_a == end(a) && in_b != end(b);
    const bool equal = in_a == end(a) && in_b == end(b);
    return shorter || (equal && a < b);
  });
  order.common.resize(plan.segments.size());
  for (size_t i = 1; i < order.segments.size(); ++i) {
    const int32_t a = order.segments[i - 1], b = order.segments[i];
    order.common[i] =
        static_cast<int32_t>(std::mismatch(begin(a), end(a), begin(b), end(b)).first - begin(a));
  }
  return order;
}

}  // namespace coppice
