// Every joule goes to the rows of one step or to idling.
#include "node/energy/energy_shares.h"

#include <gtest/gtest.h>

#include <random>

#include "node/energy/energy_samples.h"

namespace coppice::node {
namespace {

class SetMeter : public EnergyMeter {
 public:
  std::optional<double> Estimate(double) const override { return joules; }
  std::optional<double> Counted(double) const override { return joules; }
  std::string kind() const override { return "set"; }
  std::optional<double> joules;
};

TEST(EnergySharesTest, AStepGoesToItsRowsAndTheRestToNobody) {
  SetMeter meter;
  EnergyShares shares(&meter);
  meter.joules = 100;
  shares.Idle(0);  // what came before is not known
  meter.joules = 103;
  shares.Idle(1);
  meter.joules = 109;
  EXPECT_DOUBLE_EQ(*shares.StepEnds(2, 4), 1.5);
  meter.joules = 110;
  EXPECT_DOUBLE_EQ(*shares.StepEnds(3, 0), 0);  // copies alone
  meter.joules = 112;
  EXPECT_DOUBLE_EQ(*shares.StepEnds(4, 1), 3);
  EXPECT_DOUBLE_EQ(shares.idle_joules(), 3);
  EXPECT_DOUBLE_EQ(shares.step_joules(), 9);
}

TEST(EnergySharesTest, WhatIsNotMeasuredFromItsBeginIsNotKnown) {
  EXPECT_EQ(EnergyShares(nullptr).StepEnds(0, 3), std::nullopt);
  SetMeter meter;
  EnergyShares shares(&meter);
  meter.joules = 5;
  EXPECT_EQ(shares.StepEnds(0, 3), std::nullopt);
  meter.joules = 8;
  EXPECT_EQ(shares.StepEnds(1, 3), 1);
  meter.joules = std::nullopt;
  EXPECT_EQ(shares.StepEnds(2, 3), std::nullopt);
  meter.joules = 20;
  EXPECT_EQ(shares.StepEnds(3, 3), std::nullopt);
  meter.joules = 26;
  EXPECT_EQ(shares.StepEnds(4, 3), 2);
}

TEST(EnergySharesTest, AnEstimateThatWasTooHighIsGivenOnce) {
  SetMeter meter;
  EnergyShares shares(&meter);
  meter.joules = 0;
  shares.Idle(0);
  meter.joules = 10;
  EXPECT_DOUBLE_EQ(*shares.StepEnds(1, 1), 10);
  meter.joules = 8;
  EXPECT_DOUBLE_EQ(*shares.StepEnds(2, 1), 0);
  meter.joules = 13;
  EXPECT_DOUBLE_EQ(*shares.StepEnds(3, 1), 3);
}

TEST(EnergySharesTest, ATallyWithAMissingPartIsNoFigure) {
  EnergyTally tally;
  EXPECT_EQ(tally.total(), 0);
  tally.Add(2);
  tally.Add(1.5);
  EXPECT_EQ(tally.total(), 3.5);
  EXPECT_EQ(tally.Take(), 3.5);
  EXPECT_EQ(tally.total(), 0);
  tally.Add(1);
  tally.Add(std::nullopt);
  EXPECT_EQ(tally.total(), std::nullopt);
  EXPECT_EQ(tally.Take(), std::nullopt);
  tally.Add(1);
  EXPECT_EQ(tally.Take(), std::nullopt);
}

// Steps, idling and readings at random times: what all of them got is what was counted, up to the
// estimate for the time since the last reading.
TEST(EnergySharesTest, SumsOfSharesAreWhatWasCounted) {
  class Sampled : public SetMeter {
   public:
    std::optional<double> Estimate(double now_s) const override {
      return samples.Estimate(now_s, 0);
    }
    EnergySamples samples;
  } meter;
  EnergyShares shares(&meter);
  std::mt19937 random(7);
  std::uniform_real_distribution<double> seconds(0, 0.02);
  double now_s = 0, joules = 0, given = 0;
  meter.samples.Add(0, 0, true);
  shares.Idle(0);
  for (int i = 0; i < 10000; ++i) {
    now_s += seconds(random);
    joules += seconds(random) * 100;
    const int what = static_cast<int>(random() % 3);
    if (what == 0) meter.samples.Add(now_s, joules, true);
    if (what == 1) shares.Idle(now_s);
    if (what == 2) {
      const int rows = 1 + static_cast<int>(random() % 40);
      const std::optional<double> row = shares.StepEnds(now_s, rows);
      ASSERT_TRUE(row);
      ASSERT_GE(*row, 0);
      given += *row * rows;
    }
  }
  EXPECT_NEAR(given, shares.step_joules(), 1e-6);
  EXPECT_GT(shares.idle_joules(), 0.2 * joules);
  EXPECT_GT(shares.step_joules(), 0.2 * joules);
  EXPECT_NEAR(shares.idle_joules() + shares.step_joules(), meter.samples.counted(), 5);
}

}  // namespace
}  // namespace coppice::node
