// Tables in an order in which those that begin alike follow each other.
#include "plan/prefix_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace coppice {
namespace {

using testing::ElementsAre;

StepPlan PlanWith(const std::vector<std::vector<int32_t>>& tables) {
  StepPlan plan;
  for (const auto& table : tables) {
    plan.segments.emplace_back();
    plan.table.insert(plan.table.end(), table.begin(), table.end());
    plan.table_begin.push_back(static_cast<int32_t>(plan.table.size()));
  }
  return plan;
}

int Common(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return static_cast<int>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

TEST(PrefixOrder, TablesThatBeginAlikeFollowEachOther) {
  const PrefixOrder order =
      OrderByPrefix(PlanWith({{7, 3, 5}, {2}, {7, 3, 4, 9}, {}, {7, 3}, {2, 8}, {7, 3, 4, 1}}));
  EXPECT_THAT(order.segments, ElementsAre(3, 1, 5, 4, 6, 2, 0));
  EXPECT_THAT(order.common, ElementsAre(0, 0, 1, 0, 2, 3, 2));
}

TEST(PrefixOrder, EqualTablesKeepTheirOrder) {
  const PrefixOrder order = OrderByPrefix(PlanWith({{4, 5}, {1}, {4, 5}, {4, 5}}));
  EXPECT_THAT(order.segments, ElementsAre(1, 0, 2, 3));
  EXPECT_THAT(order.common, ElementsAre(0, 0, 2, 2));
}

TEST(PrefixOrder, NoSegments) { EXPECT_TRUE(OrderByPrefix(StepPlan()).segments.empty()); }

// No earlier table has more in common than the one before.
TEST(PrefixOrder, TheTableBeforeHasMostInCommon) {
  std::mt19937 random(1);
  for (int step = 0; step < 300; ++step) {
    std::vector<std::vector<int32_t>> tables(1 + random() % 12);
    for (auto& table : tables) {
      table.resize(random() % 6);
      for (int32_t& block : table) block = static_cast<int32_t>(1 + random() % 2);
    }
    const PrefixOrder order = OrderByPrefix(PlanWith(tables));
    std::vector<bool> listed(tables.size());
    for (size_t i = 0; i < tables.size(); ++i) {
      ASSERT_FALSE(listed[order.segments[i]]);
      listed[order.segments[i]] = true;
      int most = 0;
      for (size_t j = 0; j < i; ++j)
        most = std::max(most, Common(tables[order.segments[j]], tables[order.segments[i]]));
      ASSERT_EQ(order.common[i], most);
    }
  }
}

}  // namespace
}  // namespace coppice
