#include "plan/plan_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "tests/proto/sample_messages.h"

namespace coppice {
namespace {

TEST(PlanCheck, AcceptsWellFormedPlans) {
  EXPECT_TRUE(CheckPlan(proto::SamplePlan(), proto::SampleLimits()).ok())
      << CheckPlan(proto::SamplePlan(), proto::SampleLimits());
  EXPECT_TRUE(CheckPlan(StepPlan(), proto::SampleLimits()).ok());
  StepPlan commits;
  commits.commits = {{16, 32}};
  EXPECT_TRUE(CheckPlan(commits, proto::SampleLimits()).ok());
  StepPlan fetch;
  fetch.fetch = {0, 1};
  EXPECT_TRUE(CheckPlan(fetch, proto::SampleLimits()).ok());
}

// A pool whose blocks are their own pages.
TEST(PlanCheck, PagesAreOfModelsWithWindows) {
  PlanLimits limits = proto::SampleLimits();
  limits.groups = 0;
  limits.pages = 0;
  StepPlan plan = proto::SamplePlan();
  EXPECT_THAT(std::string(CheckPlan(plan, limits).message()), testing::HasSubstr("pages[0]"));
  plan.pages.clear();
  EXPECT_TRUE(CheckPlan(plan, limits).ok()) << CheckPlan(plan, limits);
}

// Commits are between pages, of which there may be more or fewer than blocks.
TEST(PlanCheck, CommitsAreOfPages) {
  PlanLimits limits = proto::SampleLimits();
  limits.pages = 5;
  StepPlan commits;
  commits.commits = {{16, 5 * 16}};
  EXPECT_THAT(std::string(CheckPlan(commits, limits).message()),
              testing::HasSubstr("commit destination[0]"));
  limits.pages = 6;
  EXPECT_TRUE(CheckPlan(commits, limits).ok()) << CheckPlan(commits, limits);
}

struct BadPlan {
  const char* name;
  std::function<void(StepPlan*)> damage;
  const char* message;  // a part of it
};

class PlanCheckTest : public testing::TestWithParam<BadPlan> {};

TEST_P(PlanCheckTest, RefusesByFieldAndIndex) {
  StepPlan plan = proto::SamplePlan();
  GetParam().damage(&plan);
  const absl::Status status = CheckPlan(plan, proto::SampleLimits());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Fields, PlanCheckTest,
    testing::Values(
        BadPlan{"TooManyRows", [](StepPlan* p) { p->token.assign(17, 1); }, "token: 17 rows"},
        BadPlan{"NegativeToken", [](StepPlan* p) { p->token[1] = -1; }, "token[1]"},
        BadPlan{"TokenBeyondVocabulary", [](StepPlan* p) { p->token[2] = 100; }, "token[2]"},
        BadPlan{"RaggedSlots", [](StepPlan* p) { p->slot.pop_back(); }, "slot: 3 entries"},
        BadPlan{"RaggedPositions", [](StepPlan* p) { p->position.push_back(1); }, "position"},
        BadPlan{"Position", [](StepPlan* p) { p->position[2] = 64; }, "position[2]"},
        BadPlan{"Rotation", [](StepPlan* p) { p->rope_position = {0, 1, 64, 2}; },
                "rope_position[2]"},
        BadPlan{"RaggedRotations", [](StepPlan* p) { p->rope_position = {0, 1}; },
                "rope_position: 2 entries"},
        BadPlan{"PrefillBeyondPrefix", [](StepPlan* p) { p->position[0] = 18; }, "position[0]"},
        BadPlan{"NodePosition", [](StepPlan* p) { p->position[3] = 20; }, "position[3]"},
        BadPlan{"Slot", [](StepPlan* p) { p->slot[1] = 8 * 16; }, "slot[1]"},
        BadPlan{"SlotOfAnother", [](StepPlan* p) { p->slot[1] = 34; }, "slot[1]"},
        BadPlan{"NodeSlotOfAnother", [](StepPlan* p) { p->slot[3] = 90; }, "slot[3]"},
        BadPlan{"SlotTwice", [](StepPlan* p) { p->slot[3] = p->chain[2] = p->slot[2]; },
                "is written twice"},
        BadPlan{"ChainBegin", [](StepPlan* p) { p->chain_begin[0] = 1; }, "chain_begin"},
        BadPlan{"ChainBeginFalls", [](StepPlan* p) { p->chain_begin[3] = 9; }, "chain_begin[4]"},
        BadPlan{"ChainTooLong", [](StepPlan* p) { p->chain.push_back(3); }, "chain_begin[4]"},
        BadPlan{"Chain", [](StepPlan* p) { p->chain[0] = -3; }, "chain[0]"},
        BadPlan{"TableBegin", [](StepPlan* p) { p->table_begin[2] = 3; }, "table_begin[2]"},
        BadPlan{"NoTables", [](StepPlan* p) { p->table_begin.clear(); }, "table_begin"},
        BadPlan{"Table", [](StepPlan* p) { p->table[1] = 8; }, "table[1]"},
        BadPlan{"SegmentRows", [](StepPlan* p) { p->segments[1].rows = 3; }, "segments[1]"},
        BadPlan{"SegmentOverflow", [](StepPlan* p) { p->segments[1].rows = INT32_MAX; },
                "segments[1]"},
        BadPlan{"EmptySegment", [](StepPlan* p) { p->segments[0].rows = 0; }, "segments[0]"},
        BadPlan{"SegmentGap", [](StepPlan* p) { p->segments[1].first_row = 3; }, "segments[1]"},
        BadPlan{"RowsLeft",
                [](StepPlan* p) {
                  p->segments.pop_back();
                  p->table_begin.pop_back();
                  p->table.resize(2);
                },
                "segments: cover 2 of 4"},
        BadPlan{"PrefixBeyondTable", [](StepPlan* p) { p->segments[1].prefix_len = 33; },
                "segments[1]"},
        BadPlan{"NeedRow", [](StepPlan* p) { p->needs[1].row = 4; }, "needs[1]"},
        BadPlan{"NeedOrder", [](StepPlan* p) { p->needs[1].row = 2; }, "needs[1]"},
        BadPlan{"NeedCount", [](StepPlan* p) { p->needs[0].count = 0; }, "needs[0]: count"},
        BadPlan{"NeedRawTop", [](StepPlan* p) { p->needs[0].raw_top = -1; }, "needs[0]: raw_top"},
        BadPlan{"NeedRawOfNothing",
                [](StepPlan* p) {
                  p->needs[0] = RowNeed();
                  p->needs[0].row = 2;
                  p->needs[0].form = RowNeed::Form::kRaw;
                },
                "needs[0]: raw_top"},
        BadPlan{"NeedRawAndCount",
                [](StepPlan* p) {
                  p->needs[0].form = RowNeed::Form::kRaw;
                  p->needs[0].raw_top = 1;
                },
                "needs[0]: count"},
        BadPlan{"NeedBias", [](StepPlan* p) { p->needs[0].bias_end = 3; }, "needs[0]: its bias"},
        BadPlan{"NeedTemperature", [](StepPlan* p) { p->needs[0].temperature = 0; }, "needs[0]"},
        BadPlan{"NeedSlack", [](StepPlan* p) { p->needs[0].slack = NAN; }, "needs[0]"},
        BadPlan{"NeedCoverWithoutSums", [](StepPlan* p) { p->needs[0].sums = false; }, "needs[0]"},
        BadPlan{"BiasToken", [](StepPlan* p) { p->bias[1].first = 100; }, "bias[1]"},
        BadPlan{"BiasNumber", [](StepPlan* p) { p->bias[0].second = INFINITY; }, "bias[0]"},
        BadPlan{"CommitSource", [](StepPlan* p) { p->commits[0].source = -1; }, "commit source[0]"},
        BadPlan{"CommitIntoSource", [](StepPlan* p) { p->commits[1].source = 64; },
                "commit source[1]"},
        BadPlan{"CommitTwice", [](StepPlan* p) { p->commits[1].destination = 64; },
                "commit destination"},
        BadPlan{"PageOfTheSink", [](StepPlan* p) { p->pages[0].block = 0; }, "pages[0]"},
        BadPlan{"PageOfNoBlock", [](StepPlan* p) { p->pages[1].block = 8; }, "pages[1]"},
        BadPlan{"PageOfNoGroup", [](StepPlan* p) { p->pages[2].group = 2; }, "pages[2]"},
        BadPlan{"NegativeGroup", [](StepPlan* p) { p->pages[2].group = -1; }, "pages[2]"},
        BadPlan{"PageBeyondPool", [](StepPlan* p) { p->pages[3].page = 8; }, "pages[3]"},
        BadPlan{"NegativePage", [](StepPlan* p) { p->pages[3].page = -1; }, "pages[3]"},
        BadPlan{"FetchWithPages",
                [](StepPlan* p) {
                  *p = StepPlan();
                  p->fetch = {0};
                  p->pages = {{1, 0, 1}};
                },
                "fetch"},
        BadPlan{"FetchWithRows", [](StepPlan* p) { p->fetch = {0}; }, "fetch"},
        BadPlan{"FetchBeyondNeeds",
                [](StepPlan* p) {
                  *p = StepPlan();
                  p->fetch = {2};
                },
                "fetch[0]"},
        BadPlan{"FetchOrder",
                [](StepPlan* p) {
                  *p = StepPlan();
                  p->fetch = {1, 1};
                },
                "fetch[1]"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace coppice
