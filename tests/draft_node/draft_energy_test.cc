// What a draft node tells leaders of the energy that their sessions used.
#include <gtest/gtest.h>

#include <memory>

#include "tests/draft_node/draft_service_fixture.h"
#include "tests/testing/counting_meter.h"

namespace coppice::draft_node {
namespace {

constexpr double kStep_j = 2;

class DraftEnergyTest : public DraftServiceTest {
 protected:
  DraftEnergyTest() : DraftServiceTest("direct://127.0.0.1:*") {
    DraftServiceOptions options;
    options.announce_within_s = kAlways;
    options.max_sessions = 2;
    options.max_rows = 32;
    options.prefill_chunk = 16;
    options.energy = &meter_;
    takes_prefilled_ = true;
    service_ =
        std::make_unique<DraftService>(options, runner_.get(), leaders_.get(), nullptr, &clock_);
  }
  test::CountingMeter meter_{kStep_j};
};

TEST_F(DraftEnergyTest, AForestBringsTheStepsSinceTheLastReply) {
  Open(1, 50);  // 49 tokens to read: four steps
  auto told = Reply();
  ASSERT_TRUE(told.has_value());
  EXPECT_TRUE(told->prefilled());
  EXPECT_FALSE(told->has_forest());
  EXPECT_DOUBLE_EQ(told->energy_joules(), kStep_j * runner_->steps());
  EXPECT_EQ(runner_->steps(), 4u);
  for (int round = 1; round < 3; ++round) {
    const uint64_t before = runner_->steps();
    Send(Request(1, round, {}, 0, 3 + round));
    told = Reply();
    ASSERT_TRUE(told.has_value());
    EXPECT_FALSE(told->prefilled());
    ASSERT_TRUE(told->has_energy_joules());
    EXPECT_DOUBLE_EQ(told->energy_joules(), kStep_j * (runner_->steps() - before));
  }
}

TEST_F(DraftEnergyTest, APromptOfOneTokenHasUsedNothing) {
  Open(1, 1);
  const auto told = Reply();
  ASSERT_TRUE(told.has_value());
  EXPECT_TRUE(told->prefilled());
  ASSERT_TRUE(told->has_energy_joules());
  EXPECT_EQ(told->energy_joules(), 0);
}

TEST_F(DraftEnergyTest, SessionsShareAStepByTheirRows) {
  Open(1, 5);  // four rows and eight, in one step: both commands are there when it begins
  Open(2, 9);
  double sum = 0;
  for (int i = 0; i < 2; ++i) {
    const auto told = Reply();
    ASSERT_TRUE(told.has_value());
    ASSERT_TRUE(told->has_energy_joules());
    sum += told->energy_joules();
    if (runner_->steps() == 1) {
      EXPECT_NEAR(told->energy_joules(), kStep_j * (told->session_id() == 1 ? 4 : 8) / 12, 1e-9);
    }
  }
  EXPECT_NEAR(sum, kStep_j * runner_->steps(), 1e-9);
}

TEST_F(DraftEnergyTest, ARefusalTellsWhatWasUsed) {
  Open(1, 50);
  ASSERT_TRUE(Reply().has_value());
  Send(Request(1, 1, {5, 7}, 2, 9));  // stable tokens that never came
  auto told = Reply();
  ASSERT_TRUE(told.has_value());
  EXPECT_NE(told->error(), "");
  ASSERT_TRUE(told->has_energy_joules());
  EXPECT_EQ(told->energy_joules(), 0);
  for (uint64_t id : {2, 3}) Open(id, 1);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Reply().has_value());
  Open(4, 9);  // all sessions are taken
  told = Reply();
  ASSERT_TRUE(told.has_value());
  EXPECT_NE(told->error(), "");
  EXPECT_EQ(told->energy_joules(), 0);
}

TEST_F(DraftEnergyTest, AMeterThatIsLostLeavesNoFigureAndTheForests) {
  meter_.lost_after = 2;
  Open(1, 50);
  auto told = Reply();
  ASSERT_TRUE(told.has_value());
  EXPECT_TRUE(told->prefilled());
  EXPECT_FALSE(told->has_energy_joules());
  Send(Request(1, 1, {}, 0, 5));
  told = Reply();
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->error(), "");
  EXPECT_GT(told->forest().token_size(), 0);
  EXPECT_FALSE(told->has_energy_joules());
}

}  // namespace
}  // namespace coppice::draft_node
