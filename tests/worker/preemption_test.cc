// Sequences in a pool that is far too small for all of them: they are preempted again and again, in
// every phase, and every answer and score has the bits that it has alone.
#include "worker/preemption.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/worker/draft_node_thread.h"
#include "tests/worker/pressure_fixture.h"
#include "tests/worker/ticking_clock.h"

namespace coppice::worker {
namespace {

using ::testing::IsEmpty;

constexpr uint64_t kLargestIndex = 16 << 10;  // bytes of an index here

class PreemptionTest : public PressureTest, public ::testing::WithParamInterface<PressedModel> {
 protected:
  PreemptionTest() : PressureTest(GetParam()) {}
};

TEST_P(PreemptionTest, EveryAnswerIsWhatItIsAlone) {
  const std::vector<proto::StartSequence> starts = Requests(600, /*drafts=*/false);
  const auto large = Load(1000);
  const std::map<uint64_t, std::string> alone = Decode(large.get(), starts, /*together=*/false);
  ASSERT_EQ(alone.size(), starts.size());
  EXPECT_EQ(preemptions_, 0u);
  const auto small = Load(LargestBound(large.get(), starts));
  ExpectSame(Decode(small.get(), starts, /*together=*/true), alone);
  EXPECT_GT(preemptions_, 40u);
}

TEST_P(PreemptionTest, AlsoWithDrafts) {
  const std::vector<proto::StartSequence> plain = Requests(200, /*drafts=*/false),
                                          drafted = Requests(200, /*drafts=*/true);
  const auto large = Load(1000);
  const std::map<uint64_t, std::string> alone = Decode(large.get(), plain, /*together=*/false);
  const auto small = Load(LargestBound(large.get(), drafted));
  DraftNodeThread node(Llama(), "direct://127.0.0.1:*");
  ExpectSame(Decode(small.get(), drafted, /*together=*/true, node.Nodes()), alone);
  EXPECT_GT(preemptions_, 15u);
  EXPECT_GT(drafted_, 1000u);
}

// Without a draft node their drafts come from their own texts.
TEST_P(PreemptionTest, AlsoWithDraftsFromTheirTexts) {
  const std::vector<proto::StartSequence> plain = Requests(200, /*drafts=*/false),
                                          drafted = Requests(200, /*drafts=*/true);
  const auto large = Load(1000);
  const std::map<uint64_t, std::string> alone = Decode(large.get(), plain, /*together=*/false);
  const auto small = Load(LargestBound(large.get(), drafted));
  const std::map<uint64_t, std::string> pressed = Decode(small.get(), drafted, /*together=*/true);
  ExpectSame(pressed, alone);
  EXPECT_GT(preemptions_, 15u);
  EXPECT_GT(drafted_, 200u);
}

// A sequence that has lost its KV keeps no index of its texts either.
TEST_P(PreemptionTest, OnlyRunningSequencesHaveAnIndexOfTheirTexts) {
  const std::vector<proto::StartSequence> starts = Requests(200, /*drafts=*/true);
  const auto large = Load(1000);
  const auto small = Load(LargestBound(large.get(), starts));
  coordinator_ = QueuedCoordinator();
  for (const proto::StartSequence& start : starts) coordinator_.Start(start);
  uint64_t most = 0;
  coordinator_.EveryTurn([&](int) {
    const proto::NodeStatus& status = coordinator_.status();
    most = std::max(most, status.suffix_drafts().index_bytes());
    EXPECT_LE(status.suffix_drafts().index_bytes(), status.running() * kLargestIndex);
  });
  const TickingClock time;
  RunOn(small.get(), EngineOptionsOf(small.get()), time);
  EXPECT_GT(most, 0u);
  for (const auto& [id, update] : coordinator_.finished())
    preemptions_ += update.stats().preemptions();
  EXPECT_GT(preemptions_, 15u);
}

// A third is cancelled, in whatever phase it is.
TEST_P(PreemptionTest, CancelledOnesLeaveNothing) {
  const std::vector<proto::StartSequence> starts = Requests(200, /*drafts=*/false);
  const auto large = Load(1000);
  const std::map<uint64_t, std::string> alone = Decode(large.get(), starts, /*together=*/false);
  const auto small = Load(LargestBound(large.get(), starts));
  coordinator_ = QueuedCoordinator();
  for (const proto::StartSequence& start : starts) coordinator_.Start(start);
  coordinator_.EveryTurn([&](int turn) {
    if (turn > 0 && turn < 200 && turn % 3 == 0 && coordinator_.finished().count(turn) == 0) {
      coordinator_.Cancel(turn);
      coordinator_.WaitFor(-1);
    }
    EXPECT_TRUE(small->blocks()->CheckIntegrity().ok()) << small->blocks()->CheckIntegrity();
  });
  RunOn(small.get(), EngineOptionsOf(small.get()), clock_);
  EXPECT_THAT(coordinator_.errors(), IsEmpty());
  for (const auto& [id, update] : coordinator_.finished()) {
    preemptions_ += update.stats().preemptions();
    EXPECT_TRUE(Answer(id) == alone.at(id)) << id;
  }
  EXPECT_GE(coordinator_.finished().size(), 133u);
  EXPECT_LT(coordinator_.finished().size(), 170u);
  EXPECT_GT(preemptions_, 15u);
}

// The youngest of the lowest priority.
TEST(PreemptionOrderTest, TheOldestOfTheBestPriorityIsTheLast) {
  std::vector<Sequence> sequences(4);
  std::vector<Sequence*> running;
  const std::pair<int, uint64_t> ranks[] = {{0, 9}, {1, 2}, {0, 4}, {1, 1}};
  for (int i = 0; i < 4; ++i) {
    sequences[i].priority = ranks[i].first;
    sequences[i].arrival_order = ranks[i].second;
    running.push_back(&sequences[i]);
  }
  for (const int next : {1, 3, 0, 2}) {
    EXPECT_EQ(FirstToPreempt(running), &sequences[next]);
    std::erase(running, &sequences[next]);
  }
  EXPECT_EQ(FirstToPreempt(running), nullptr);
  // Of a priority, a client's only sequence is kept.
  sequences[0].client = "b";
  EXPECT_EQ(FirstToPreempt({&sequences[0], &sequences[2]}),
            &sequences[0]);  // both are the only one
  sequences[1].priority = sequences[3].priority = 0;
  EXPECT_EQ(FirstToPreempt({&sequences[0], &sequences[1], &sequences[3]}), &sequences[1]);
  sequences[1].priority = sequences[3].priority = 1;
  sequences[0].client = "";
  // Whoever was preempted four times is preempted after all that were not.
  sequences[1].stats.preemptions = 4;
  sequences[3].stats.preemptions = 3;
  EXPECT_EQ(FirstToPreempt({&sequences[1], &sequences[3]}), &sequences[3]);
  EXPECT_EQ(FirstToPreempt({&sequences[0], &sequences[1], &sequences[2]}), &sequences[0]);
}

INSTANTIATE_TEST_SUITE_P(Models, PreemptionTest,
                         ::testing::Values(PressedModel{"", "auto"}, PressedModel{"", "int8"},
                                           PressedModel{"gemma3", "auto"}),
                         [](const auto& info) {
                           return std::string(info.param.family[0] == 0 ? "Llama" : "Windows") +
                                  info.param.kv_dtype;
                         });

}  // namespace
}  // namespace coppice::worker
