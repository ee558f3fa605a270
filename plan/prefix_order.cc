#include "plan/prefix_order.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace coppice {
namespace {

// Orders the tables by their blocks from one level of their trie to the next, so that no block is
// compared twice.
class Sorter {
 public:
  explicit Sorter(const StepPlan& plan) : plan_(plan) {
    order_.segments.resize(plan.segments.size());
    std::iota(order_.segments.begin(), order_.segments.end(), 0);
    order_.common.resize(plan.segments.size());
  }

  // The segments at [begin, end), whose tables have at least the first `depth` blocks in common.
  void Sort(size_t begin, size_t end, int32_t depth) {
    if (end - begin < 2) return;
    int32_t common = Blocks(order_.segments[begin]);
    for (size_t i = begin + 1; i < end; ++i)
      common = Common(order_.segments[begin], order_.segments[i], depth, common);
    const auto first = order_.segments.begin();
    std::sort(first + begin, first + end, [&](int32_t a, int32_t b) {
      const int32_t block_a = BlockAt(a, common), block_b = BlockAt(b, common);
      return block_a != block_b ? block_a < block_b : a < b;
    });
    for (size_t from = begin, to = begin; from < end; from = to) {
      const int32_t block = BlockAt(order_.segments[from], common);
      while (to < end && BlockAt(order_.segments[to], common) == block) ++to;
      if (from > begin) order_.common[from] = common;
      if (block == kNoBlock) {
        std::fill(order_.common.begin() + from + 1, order_.common.begin() + to, common);
      } else {
        Sort(from, to, common + 1);
      }
    }
  }

  PrefixOrder Take() { return std::move(order_); }

 private:
  static constexpr int32_t kNoBlock = -1;  // behind the end of a table

  int32_t Blocks(int32_t s) const { return plan_.table_begin[s + 1] - plan_.table_begin[s]; }
  int32_t BlockAt(int32_t s, int32_t i) const {
    return i < Blocks(s) ? plan_.table[plan_.table_begin[s] + i] : kNoBlock;
  }
  // The leading blocks that two tables have in common: at least `least`, counted up to `most`.
  int32_t Common(int32_t a, int32_t b, int32_t least, int32_t most) const {
    const int32_t* const of_a = plan_.table.data() + plan_.table_begin[a];
    const int32_t* const of_b = plan_.table.data() + plan_.table_begin[b];
    const int32_t end = std::min(most, Blocks(b));
    constexpr int32_t kAtOnce = 64;
    int32_t i = std::min(least, end);
    while (i + kAtOnce <= end && std::memcmp(of_a + i, of_b + i, kAtOnce * sizeof(int32_t)) == 0)
      i += kAtOnce;
    while (i < end && of_a[i] == of_b[i]) ++i;
    return i;
  }

  const StepPlan& plan_;
  PrefixOrder order_;
};

}  // namespace

PrefixOrder OrderByPrefix(const StepPlan& plan) {
  Sorter sorter(plan);
  sorter.Sort(0, plan.segments.size(), 0);
  return sorter.Take();
}

}  // namespace coppice
