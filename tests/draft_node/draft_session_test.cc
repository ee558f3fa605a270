// Sessions of a draft that takes states, without a model: which rows they add to a step, with which
// states, and which states they keep.
#include "draft_node/draft_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace coppice::draft_node {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kColumns = 2;

// The state of row r is (10 r, 10 r + 1).
decoding::RowStates StatesOf(int first, int count) {
  decoding::RowStates states;
  states.first = first;
  states.count = count;
  for (int row = first; row < first + count; ++row) {
    states.values.push_back(10 * row);
    states.values.push_back(10 * row + 1);
  }
  return states;
}

class DraftSessionTest : public ::testing::Test {
 protected:
  DraftSession Open(std::vector<TokenId> prompt) {
    return DraftSession(decoding::DecodingParams(), std::move(prompt), &blocks_,
                        {model::TargetStates::Use::kBesideEmbedding, kColumns});
  }
  // The plan of a step with prefill rows.
  StepPlan Prefill(DraftSession* session, int budget = 100) {
    blocks_.EndRound();
    model::StepBuilder step(&blocks_, /*vocab_size=*/1000, kColumns);
    EXPECT_TRUE(session->AppendPrefill(budget, &step, &copies_).ok());
    return step.Take();
  }

  model::BlockManager blocks_{{.num_blocks = 64}};
  std::vector<KvCopy> copies_;
};

TEST_F(DraftSessionTest, APromptOfOneTokenHasNoRow) {
  const DraftSession session = Open({7});
  EXPECT_FALSE(session.prefilling());
  EXPECT_FALSE(session.LacksStates());
}

TEST_F(DraftSessionTest, RowsAreAddedAsFarAsStatesHaveCome) {
  DraftSession session = Open({50, 51, 52, 53, 54, 55});
  EXPECT_TRUE(session.prefilling());
  EXPECT_TRUE(session.LacksStates());
  EXPECT_FALSE(session.CanPrefill());
  EXPECT_EQ(Prefill(&session).rows(), 0);

  ASSERT_TRUE(session.TakeStates(StatesOf(1, 3)).ok());
  EXPECT_TRUE(session.CanPrefill());
  const StepPlan first = Prefill(&session, /*budget=*/2);
  EXPECT_THAT(first.token, ElementsAre(51, 52));
  EXPECT_THAT(first.position, ElementsAre(0, 1));
  EXPECT_THAT(first.state, ElementsAre(0, 1));
  EXPECT_THAT(first.states, ElementsAre(10, 11, 20, 21));
  const StepPlan second = Prefill(&session);
  EXPECT_THAT(second.token, ElementsAre(53));
  EXPECT_THAT(second.states, ElementsAre(30, 31));
  EXPECT_TRUE(session.LacksStates());

  // The last token waits for a request.
  ASSERT_TRUE(session.TakeStates(StatesOf(4, 2)).ok());
  EXPECT_THAT(Prefill(&session).token, ElementsAre(54));
  EXPECT_FALSE(session.prefilling());
  EXPECT_EQ(session.held_states(), 1);
}

TEST_F(DraftSessionTest, ARowWithoutItsStateStopsThoseBehindIt) {
  DraftSession session = Open({50, 51, 52, 53, 54, 55});
  ASSERT_TRUE(session.TakeStates(StatesOf(1, 1)).ok());
  ASSERT_TRUE(session.TakeStates(StatesOf(3, 2)).ok());
  EXPECT_THAT(Prefill(&session).token, ElementsAre(51));
  EXPECT_TRUE(session.LacksStates());
  ASSERT_TRUE(session.TakeStates(StatesOf(2, 1)).ok());
  const StepPlan plan = Prefill(&session);
  EXPECT_THAT(plan.token, ElementsAre(52, 53, 54));
  EXPECT_THAT(plan.states, ElementsAre(20, 21, 30, 31, 40, 41));
}

TEST_F(DraftSessionTest, StatesOfRowsThatHaveRunAreNotKept) {
  DraftSession session = Open({50, 51, 52, 53, 54});
  ASSERT_TRUE(session.TakeStates(StatesOf(1, 3)).ok());
  EXPECT_EQ(Prefill(&session).rows(), 3);
  EXPECT_EQ(session.held_states(), 0);
  for (int again = 0; again < 3; ++again) ASSERT_TRUE(session.TakeStates(StatesOf(1, 4)).ok());
  EXPECT_EQ(session.held_states(), 1);
}

TEST_F(DraftSessionTest, StatesOfRowsThatTheSessionDoesNotHaveAreRefused) {
  DraftSession session = Open({50, 51, 52});
  for (const auto& [first, count] : {std::pair(0u, 1u), {3u, 1u}, {1u, 3u}, {4000000000u, 1u}}) {
    decoding::RowStates states;
    states.first = first;
    states.count = count;
    states.values.resize(kColumns * count);
    const absl::Status refused = session.TakeStates(states);
    EXPECT_THAT(refused.message(), HasSubstr("states.first")) << first;
    EXPECT_THAT(refused.message(), HasSubstr("expected 1 to 2")) << first;
  }
  EXPECT_EQ(session.held_states(), 0);
  ASSERT_TRUE(session.ExtendStable(1, std::vector<TokenId>{53}).ok());
  EXPECT_TRUE(session.TakeStates(StatesOf(1, 3)).ok());
}

// Every row depends on the first token, which has none.
TEST_F(DraftSessionTest, PromptsThatDifferInTheirFirstTokenShareNoKv) {
  std::vector<TokenId> prompt;
  for (int i = 0; i < 40; ++i) prompt.push_back(100 + i);
  {
    DraftSession session = Open(prompt);
    ASSERT_TRUE(session.TakeStates(StatesOf(1, 39)).ok());
    EXPECT_EQ(Prefill(&session).rows(), 38);
    blocks_.EndRound();
  }
  {
    DraftSession other = Open({99});
    for (int i = 1; i < 40; ++i) ASSERT_TRUE(other.ExtendStable(i, {&prompt[i], 1}).ok());
    ASSERT_TRUE(other.TakeStates(StatesOf(1, 39)).ok());
    EXPECT_EQ(Prefill(&other).rows(), 38);
  }
  DraftSession same = Open(prompt);
  ASSERT_TRUE(same.TakeStates(StatesOf(1, 39)).ok());
  EXPECT_EQ(same.held_states(), 7);  // two blocks of 16 rows are there
  const StepPlan rest = Prefill(&same);
  EXPECT_THAT(rest.states.front(), 330);
  EXPECT_THAT(rest.token, ElementsAre(133, 134, 135, 136, 137, 138));
  EXPECT_TRUE(copies_.empty());
  EXPECT_TRUE(blocks_.CheckIntegrity().ok());
}

// The other has no more states, so nobody would compute what this one waits for.
TEST_F(DraftSessionTest, APromptWithoutStatesHoldsNoOtherBack) {
  std::vector<TokenId> prompt;
  for (int i = 0; i < 80; ++i) prompt.push_back(100 + i);
  DraftSession first = Open(prompt), second = Open(prompt);
  ASSERT_TRUE(second.TakeStates(StatesOf(1, 79)).ok());
  model::PrefixReaders readers;
  EXPECT_FALSE(first.CanPrefill());
  ASSERT_TRUE(second.CanPrefill());
  EXPECT_FALSE(second.WaitsForPrefix(&readers));
  EXPECT_EQ(Prefill(&second).rows(), 78);
  blocks_.EndRound();
  // What the second has computed needs no state of the first.
  ASSERT_TRUE(first.TakeStates(StatesOf(1, 1)).ok());
  EXPECT_FALSE(first.WaitsForPrefix(&readers));
  ASSERT_TRUE(first.TakeStates(StatesOf(1, 79)).ok());
  EXPECT_EQ(first.held_states(), 15);
}

TEST_F(DraftSessionTest, AMissingStateOfAStableRowIsNamed) {
  DraftSession session = Open({50});
  ASSERT_TRUE(session.ExtendStable(2, std::vector<TokenId>{51, 52}).ok());
  ASSERT_TRUE(session.TakeStates(StatesOf(1, 1)).ok());
  std::vector<MissingRow> missing;
  EXPECT_THAT(session.StableNode(&missing).status().message(), HasSubstr("states of row 2"));
  ASSERT_TRUE(session.TakeStates(StatesOf(2, 1)).ok());
  missing.clear();
  blocks_.Retain(session.sequence(), {});
  ASSERT_TRUE(session.StableNode(&missing).ok());
  ASSERT_EQ(missing.size(), 2u);
  EXPECT_EQ(missing[1].token, 52);
  EXPECT_THAT(missing[1].state, ElementsAre(20, 21));
}

}  // namespace
}  // namespace coppice::draft_node
