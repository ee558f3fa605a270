// Slots of blocks become slots of pages, and a plan whose rows see what is gone is refused.
#include "plan/page_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace coppice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kWindow = 20;

// Two groups: one that sees everything, one with a window of 20. 8 blocks, 12 pages.
PageMap Map() { return PageMap({0, kWindow}, 8, 12); }

// A sequence of 40 tokens in the blocks 3, 1, 2, whose row at position 40 is in block 6.
StepPlan Plan() {
  StepPlan plan;
  plan.token = {1, 2};
  plan.position = {40, 41};
  plan.slot = {6 * 16 + 2, 6 * 16 + 5};
  plan.chain = {6 * 16 + 2, 6 * 16 + 2, 6 * 16 + 5};
  plan.chain_begin = {0, 1, 3};
  plan.segments = {{0, 2, 40}};
  plan.table = {3, 1, 2};
  plan.table_begin = {0, 3};
  plan.pages = {{3, 0, 11}, {1, 0, 10}, {2, 0, 9}, {6, 0, 8}, {1, 1, 4}, {2, 1, 5}, {6, 1, 2}};
  return plan;
}

TEST(PageMapTest, EachGroupHasItsPages) {
  PageMap map = Map();
  StepPlan plan = Plan();
  ASSERT_TRUE(map.Apply(&plan).ok());
  ASSERT_EQ(plan.groups.size(), 2u);
  EXPECT_THAT(plan.slot_of(0), ElementsAre(8 * 16 + 2, 8 * 16 + 5));
  EXPECT_THAT(plan.slot_of(1), ElementsAre(2 * 16 + 2, 2 * 16 + 5));
  EXPECT_THAT(plan.chain_of(1), ElementsAre(2 * 16 + 2, 2 * 16 + 2, 2 * 16 + 5));
  EXPECT_THAT(plan.table_of(0), ElementsAre(11, 10, 9));
  EXPECT_THAT(plan.table_of(1), ElementsAre(0, 4, 5));  // no row sees block 3 there
  EXPECT_EQ(map.page(3, 0), 11);
  EXPECT_EQ(map.page(3, 1), 0);
}

TEST(PageMapTest, LaterPlansBringWhatHasChanged) {
  PageMap map = Map();
  StepPlan plan = Plan();
  ASSERT_TRUE(map.Apply(&plan).ok());
  StepPlan next = Plan();
  next.pages = {{2, 1, 4}, {1, 1, 5}};  // they change places
  ASSERT_TRUE(map.Apply(&next).ok());
  EXPECT_THAT(next.table_of(1), ElementsAre(0, 5, 4));
  EXPECT_THAT(next.table_of(0), ElementsAre(11, 10, 9));
}

TEST(PageMapTest, WithoutWindowsABlockIsItsOwnPage) {
  PageMap map({}, 8, 8);
  StepPlan plan = Plan();
  plan.pages.clear();
  ASSERT_TRUE(map.Apply(&plan).ok());
  EXPECT_TRUE(plan.groups.empty());
  EXPECT_EQ(plan.slot_of(0), plan.slot);
  EXPECT_EQ(plan.table_of(0), plan.table);
  EXPECT_EQ(plan.chain_of(0), plan.chain);
}

TEST(PageMapTest, RefusesWhatRowsSeeAndIsGone) {
  const auto refused = [](auto change) {
    PageMap map = Map();
    StepPlan plan = Plan();
    change(&plan);
    const absl::Status status = map.Apply(&plan);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refused([](StepPlan* p) { p->pages[0].page = 0; }),
              HasSubstr("table[0]: block 3 has no page in group 0"));
  EXPECT_THAT(refused([](StepPlan* p) { p->pages[4].page = 0; }),
              HasSubstr("table[1]: block 1 has no page in group 1"));
  EXPECT_THAT(refused([](StepPlan* p) { p->pages[6].page = 0; }),
              HasSubstr("slot[0]: block 6 has no page in group 1"));
  EXPECT_THAT(refused([](StepPlan* p) { p->chain[0] = 5 * 16; }), HasSubstr("chain[0]: block 5"));
  EXPECT_THAT(refused([](StepPlan* p) { p->pages[1].page = 9; }),
              HasSubstr("page 9 has two blocks"));
}

// The window of the first row of a segment decides: one position earlier, block 3 is seen.
TEST(PageMapTest, TheFirstRowSeesMost) {
  for (const int position : {35, 34}) {
    PageMap map = Map();
    StepPlan plan = Plan();
    plan.token = {1};
    plan.position = {position};
    plan.slot = {2 * 16 + position - 32};
    plan.chain.clear();
    plan.chain_begin = {0, 0};
    plan.segments = {{0, 1, position + 1}};
    EXPECT_EQ(map.Apply(&plan).ok(), position - kWindow + 1 >= 16) << position;
  }
}

}  // namespace
}  // namespace coppice
