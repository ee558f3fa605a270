// Whom the engine gives the energy of its steps to.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "tests/testing/counting_meter.h"
#include "tests/worker/engine_fixture.h"

namespace coppice::worker {
namespace {

constexpr double kStep_j = 2;

class EngineEnergyTest : public EngineTest {
 protected:
  void RunMetered() {
    EngineOptions options = Options(runner_.get());
    options.scheduler.prefill_chunk = 8;
    options.energy = &meter_;
    const uint64_t before = runner_->steps();
    RunOn(runner_.get(), options, clock_);
    steps_ = runner_->steps() - before;
  }
  double Joules(uint64_t id) {
    const proto::SequenceUpdate& update = coordinator_.finished().at(id);
    EXPECT_TRUE(update.has_energy_joules()) << id;
    return update.energy_joules();
  }
  static std::vector<TokenId> Prompt(int length) {
    std::vector<TokenId> prompt;
    for (int i = 0; i < length; ++i) prompt.push_back(3 + (5 * i) % 80);
    return prompt;
  }

  test::CountingMeter meter_{kStep_j};
  uint64_t steps_ = 0;
};

TEST_F(EngineEnergyTest, OneSequenceGetsEveryStepItsPromptIncluded) {
  coordinator_.Start(MakeStart(1, Params(), Prompt(30)));  // four chunks
  RunMetered();
  EXPECT_GE(steps_, 4u + Params().max_tokens - 1);
  EXPECT_NEAR(Joules(1), kStep_j * steps_, 1e-9);
}

TEST_F(EngineEnergyTest, SequencesOfAStepShareItByTheirRows) {
  for (uint64_t id = 1; id <= 6; ++id) {
    decoding::DecodingParams params = Params();
    params.kind = sampling::DecodingKind::kBeamSearch;
    params.beam_width = params.num_hypotheses = static_cast<int>(id);
    coordinator_.Start(MakeStart(id, params, Prompt(1)));  // nothing to prefill: rounds together
  }
  RunMetered();
  double sum = 0;
  for (uint64_t id = 1; id <= 6; ++id) sum += Joules(id);
  EXPECT_NEAR(sum, kStep_j * steps_, 1e-9);
  // Round one is one root each, later ones have as many rows as beams: 1, 2, ... 6 of 21.
  ASSERT_EQ(steps_, static_cast<uint64_t>(Params().max_tokens));
  for (uint64_t id = 1; id <= 6; ++id)
    EXPECT_NEAR(Joules(id), kStep_j * (1 / 6.0 + (steps_ - 1) * id / 21.0), 1e-9) << id;
}

TEST_F(EngineEnergyTest, APromptThatIsReadBesidesOthersPaysForItsRows) {
  coordinator_.Start(MakeStart(1, Params(), Prompt(1)));
  coordinator_.Start(MakeStart(2, Params(), Prompt(50)));
  RunMetered();
  EXPECT_NEAR(Joules(1) + Joules(2), kStep_j * steps_, 1e-9);
  EXPECT_GT(Joules(2), Joules(1) + 4 * kStep_j);
}

TEST_F(EngineEnergyTest, EveryReportSaysWhatWasUsedSoFar) {
  decoding::DecodingParams params = Params();
  params.beam_width = params.num_hypotheses = 1;
  coordinator_.Start(MakeStart(1, params));
  RunMetered();
  const std::vector<double>& reported = coordinator_.energy(1);
  ASSERT_EQ(reported.size(), steps_);
  for (size_t step = 0; step < reported.size(); ++step)
    EXPECT_NEAR(reported[step], kStep_j * (step + 1), 1e-9);
}

TEST_F(EngineEnergyTest, TheNodeTellsItsTotalIdleOrNot) {
  coordinator_.Start(MakeStart(1, Params()));
  RunMetered();
  ASSERT_TRUE(coordinator_.status().has_energy_joules());
  EXPECT_EQ(coordinator_.status().energy_source(), "count");
}

// It fails under way: those who were there have no figure, and every sequence its answer.
TEST_F(EngineEnergyTest, AMeterThatIsLostEndsTheFiguresAlone) {
  coordinator_.Start(MakeStart(1, Params()));
  Run();
  const proto::SequenceUpdate unmetered = coordinator_.finished().at(1);
  EXPECT_FALSE(unmetered.has_energy_joules());
  EXPECT_FALSE(coordinator_.status().has_energy_joules());
  meter_.lost_after = 4;
  coordinator_.Start(MakeStart(2, Params()));
  RunMetered();
  EXPECT_FALSE(coordinator_.finished().at(2).has_energy_joules());
  ExpectSameAnswer(coordinator_.finished().at(2), unmetered);
}

}  // namespace
}  // namespace coppice::worker
