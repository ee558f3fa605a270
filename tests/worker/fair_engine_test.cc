// Clients side by side on one engine: what one asks for never keeps another waiting for more steps
// than its share explains, and changes no answer. Time is counted in steps, or in rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/engine_fixture.h"

namespace coppice::worker {
namespace {

using ::testing::IsEmpty;

// The runner's steps, as they are sent to followers: a pass takes 10 ms and 2 ms for each row.
class RowClock : public Clock, public model::PlanSender {
 public:
  absl::Status Send(const StepPlan& plan) override {
    if (plan.rows() == 0) return absl::OkStatus();
    rows.push_back(plan.rows());
    now_s_ += 0.010 + 0.002 * plan.rows();
    return absl::OkStatus();
  }
  double NowSeconds() const override { return now_s_; }
  int steps() const { return static_cast<int>(rows.size()); }
  std::vector<int> rows;  // of each step

 private:
  double now_s_ = 0;
};

class FairEngineTest : public EngineTest {
 protected:
  static constexpr int kRows = 512;
  FairEngineTest() {
    test::TinyLlamaOptions tiny;
    tiny.vocab = kVocab;
    tiny.max_positions = 1024;
    test::WriteTinyLlama(test::MakeTinyLlama(tiny), large_dir_.path());
    model::ModelRunnerOptions options;
    options.dir = large_dir_.path();
    options.kv_bytes = 64 << 20;
    options.threads = 1;
    large_ = model::ModelRunner::Load(options, single_.get()).value();
    options_ = Options(large_.get());
    options_.scheduler.max_rows = kRows;
    options_.scheduler.prefill_chunk = 256;
    options_.scheduler.max_step_s = 0;
  }
  static std::vector<TokenId> Prompt(int length, uint64_t id) {
    std::mt19937 random(id);
    std::vector<TokenId> prompt;
    for (int i = 0; i < length; ++i) prompt.push_back(random() % kVocab);
    return prompt;
  }
  // A request of an answer of `tokens` tokens.
  proto::StartSequence Request(uint64_t id, const std::string& client, int width, int tokens,
                               int prompt, double weight = 0) {
    decoding::DecodingParams params = Params();
    // All its beams differ, so it has as many rows.
    if (width > 1) params.kind = sampling::DecodingKind::kBeamSearch;
    params.beam_width = params.num_hypotheses = width;
    params.max_tokens = tokens;
    params.seed = id;
    proto::StartSequence start = MakeStart(id, params, Prompt(prompt, id));
    start.set_client(client);
    start.set_client_weight(weight);
    requests_[id] = start;
    return start;
  }
  // Calls act before each step until all have ended.
  void RunSteps(std::function<void(int step)> act) {
    const uint64_t used = large_->blocks()->counts().used;
    coordinator_.EveryTurn([&](int) { act(clock_of_rows_.steps()); });
    Engine engine(options_, large_.get(), plans_.get(), &coordinator_, &clock_of_rows_);
    large_->SendPlansTo(&clock_of_rows_);
    ASSERT_TRUE(engine.Run().ok());
    coordinator_.EveryTurn(nullptr);
    EXPECT_THAT(coordinator_.errors(), IsEmpty());
    EXPECT_EQ(large_->blocks()->counts().used, used);
    EXPECT_TRUE(large_->blocks()->CheckIntegrity().ok()) << large_->blocks()->CheckIntegrity();
    EXPECT_LE(*std::max_element(clock_of_rows_.rows.begin(), clock_of_rows_.rows.end()), kRows);
  }
  // Every answer is what it is alone.
  void ExpectAnswersOfAlone() {
    const std::map<uint64_t, proto::SequenceUpdate> together = coordinator_.finished();
    for (const auto& [id, start] : requests_) {
      coordinator_.Start(start);
      RunOn(large_.get(), options_, clock_);
      ASSERT_EQ(together.count(id), 1u);
      ExpectSameAnswer(together.at(id), coordinator_.finished().at(id));
    }
  }

  struct Steps {
    int first_token = 0, all = 0;  // steps of others and its own until its first token, and its end
    double seconds = 0;            // until its end
  };
  // After five steps of the requests that are started, `small` comes.
  Steps Beside(const proto::StartSequence& small) {
    const uint64_t id = small.sequence_id();
    int came = -1;
    double came_s = 0;
    Steps steps;
    coordinator_.WaitFor(1);
    RunSteps([&](int step) {
      if (came < 0 && step >= 5) {
        coordinator_.Start(small, /*will_end=*/false);
        came = step;
        came_s = clock_of_rows_.NowSeconds();
      }
      if (steps.first_token == 0 && coordinator_.tokens(id) > 0) steps.first_token = step - came;
      if (steps.all > 0 || coordinator_.finished().count(id) == 0) return;
      steps.all = step - came;
      steps.seconds = clock_of_rows_.NowSeconds() - came_s;
    });
    return steps;
  }

  test::TempDir large_dir_;
  std::unique_ptr<model::ModelRunner> large_;
  EngineOptions options_;
  RowClock clock_of_rows_;
  std::map<uint64_t, proto::StartSequence> requests_;
};

// The eight fill a pass. The prompt has its share of the next step, and then the small request one row
// of each step, since its client has always had less.
TEST_F(FairEngineTest, ASmallRequestIsServedInEachStepBesideEightThatFillAPass) {
  for (uint64_t id = 1; id <= 8; ++id) coordinator_.Start(Request(id, "a", 64, 24, 3));
  const Steps steps = Beside(Request(9, "b", 1, 12, 1));
  EXPECT_EQ(steps.first_token, 1);
  EXPECT_EQ(steps.all, 12);
  ExpectAnswersOfAlone();
}

// Without the share of prompts it waits until one of the eight has ended: the control of the test
// above. The eight begin together and have 24 rounds.
TEST_F(FairEngineTest, WithoutAShareOfPromptsItWaitsForTheEight) {
  options_.scheduler.prefill_share = 0;
  for (uint64_t id = 1; id <= 8; ++id) coordinator_.Start(Request(id, "a", 64, 24, 3));
  EXPECT_EQ(Beside(Request(9, "b", 1, 12, 1)).first_token, 24 - 5 + 1);
}

// 24 of them need three passes for a round of all.
TEST_F(FairEngineTest, ASmallRequestIsServedInEachStepBesideThreeTimesThatMany) {
  for (uint64_t id = 1; id <= 24; ++id) coordinator_.Start(Request(id, "a", 64, 16, 3));
  const Steps steps = Beside(Request(25, "b", 1, 12, 1));
  EXPECT_EQ(steps.first_token, 1);
  EXPECT_EQ(steps.all, 12);
}

// The control: of the same client, it has its turn with the 24.
TEST_F(FairEngineTest, WithinAClientASequenceWaitsForTheOthers) {
  for (uint64_t id = 1; id <= 24; ++id) coordinator_.Start(Request(id, "a", 64, 16, 3));
  const Steps steps = Beside(Request(25, "a", 1, 12, 1));
  EXPECT_EQ(steps.first_token, 1);
  EXPECT_GE(steps.all, 12 * 5 / 2);
}

// Fifty prompts of 400 tokens, and then one of 300 of another client. Each has half of the 256 tokens
// of a step: 299 take three steps.
TEST_F(FairEngineTest, APromptIsReadBesideFiftyLongOnesOfAnotherClient) {
  for (uint64_t id = 1; id <= 50; ++id) coordinator_.Start(Request(id, "a", 1, 2, 400));
  const Steps steps = Beside(Request(51, "b", 1, 2, 300));
  EXPECT_LE(steps.first_token, 3);
  ExpectAnswersOfAlone();
}

// The control: behind prompts of its own client that lack less, it waits for half of all tokens at
// least. 50 prompts of 200 tokens are 39 steps.
TEST_F(FairEngineTest, WithinAClientTheOldestAndTheShortestPromptGoFirst) {
  for (uint64_t id = 1; id <= 50; ++id) coordinator_.Start(Request(id, "a", 1, 2, 200));
  EXPECT_GE(Beside(Request(51, "a", 1, 2, 300)).first_token, 30);
  for (uint64_t id = 52; id <= 101; ++id) coordinator_.Start(Request(id, "a", 1, 2, 200));
}

// Both always have more sequences than fit. Of a heavier client more have ended at any time.
TEST_F(FairEngineTest, RowsAreSharedByWeight) {
  for (uint64_t id = 1; id <= 32; ++id) {
    coordinator_.Start(Request(id, "a", 32, 12, 3));
    coordinator_.Start(Request(100 + id, "b", 32, 12, 3, 3));
  }
  int of_a = 0, of_b = 0;
  RunSteps([&](int) {
    int a = 0, b = 0;
    for (const auto& [id, update] : coordinator_.finished()) ++(id < 100 ? a : b);
    if (b == 32 && of_b == 0) of_a = a, of_b = b;
  });
  EXPECT_EQ(of_b, 32);
  EXPECT_LE(of_a, 32 / 3 + 2);
}

// As many beams as a pass has rows, beside a stream of prompts and small requests of another client.
// The wide one has the share of prompts in one step and leaves it in the next. Between two of its steps
// the other client has a turn, so it has every second or third.
TEST_F(FairEngineTest, ASequenceThatFillsAPassTakesTurnsWithPromptsAndOthers) {
  options_.scheduler.max_rows = 64;
  coordinator_.Start(Request(1, "a", 64, 16, 3));
  uint64_t id = 1;
  int wide = 0;
  RunSteps([&](int step) {
    if (wide == 0 && coordinator_.finished().count(1) > 0) wide = step;
    if (id <= 100) coordinator_.Start(Request(++id, "b", 1, 8, 30));
  });
  EXPECT_LE(wide, 3 * 16 + 1);
  EXPECT_GT(wide, 16);  // it has not had every step
  ExpectAnswersOfAlone();
}

// Nothing else is ready here: every second step is for the prompts, which are of the same client.
TEST_F(FairEngineTest, ASequenceThatFillsAPassLeavesPromptsTheirSteps) {
  options_.scheduler.max_rows = 64;
  options_.scheduler.prefill_chunk = 16;
  coordinator_.Start(Request(1, "a", 64, 16, 3));
  const Steps steps = Beside(Request(2, "a", 1, 2, 100));
  EXPECT_LE(steps.first_token, 2 * (100 + 15) / 16);
}

// The second of a needs all blocks but a few. The request of b passes it.
TEST_F(FairEngineTest, AHugeRequestDoesNotKeepASmallOneFromThePool) {
  const proto::StartSequence huge = Request(2, "a", 64, 24, 3);
  const auto params = proto::DecodingFromMessage(huge.decoding()).value();
  options_.scheduler.kv_blocks = decoding::KvPagesBound(params, 3, {}) + 2;
  coordinator_.Start(Request(1, "a", 1, 100, 3));
  coordinator_.Start(huge);
  const Steps steps = Beside(Request(3, "b", 1, 12, 1));
  EXPECT_EQ(steps.first_token, 1);
  EXPECT_EQ(steps.all, 12);
  ExpectAnswersOfAlone();
}

// Sequences of all widths from three clients. While L is the widest, a step passes on at least
// max_rows - L rows by turns, of which each of C clients gets its part, so a sequence has a round
// within C (R + 2 L) / (max_rows - L) steps, where R are the rows of all that its client has; twice as
// many while prompts have their share.
TEST_F(FairEngineTest, NobodyStarvesInAMixOfAllWidths) {
  options_.scheduler.max_rows = 128;
  constexpr int kWidest = 48, kClients = 3, kTokens = 8;
  std::mt19937 random(5);
  std::map<uint64_t, int> came, ended;
  std::map<std::string, int> rows;
  std::map<uint64_t, std::string> client_of;
  uint64_t id = 0;
  RunSteps([&](int step) {
    for (const auto& [one, update] : coordinator_.finished()) ended.try_emplace(one, step);
    for (int i = 0; i < 2 && id < 60; ++i) {
      ++id;
      const std::string client(1, static_cast<char>('a' + random() % kClients));
      const int width = id % 7 == 0 ? kWidest : 1 + random() % 12;
      coordinator_.Start(Request(id, client, width, kTokens, 1 + random() % 60));
      came[id] = step;
      client_of[id] = client;
      rows[client] += width;
    }
  });
  for (const auto& [one, step] : came) {
    const int round =
        kClients * (rows.at(client_of.at(one)) + 2 * kWidest) / (128 * 3 / 4 - kWidest) + 1;
    EXPECT_LE(ended.at(one) - step, 2 * kTokens * round) << one;
  }
  ExpectAnswersOfAlone();
}

// Passes of 512 rows take 1.03 s. While b has a request, they take 0.25 s.
TEST_F(FairEngineTest, StepsAreShortWhileSeveralClientsHaveRequests) {
  double seconds[2];
  for (const bool limited : {false, true}) {
    options_.scheduler.max_step_s = limited ? 0.25 : 0;
    const uint64_t first = limited ? 11 : 1;
    clock_of_rows_.rows.clear();
    for (uint64_t i = 0; i < 8; ++i) coordinator_.Start(Request(first + i, "a", 64, 24, 3));
    const Steps steps = Beside(Request(first + 8, "b", 1, 12, 1));
    EXPECT_EQ(*std::max_element(clock_of_rows_.rows.begin(), clock_of_rows_.rows.end()), kRows);
    EXPECT_EQ(steps.all, 12);
    seconds[limited] = steps.seconds;
  }
  EXPECT_GT(seconds[false], 10);
  EXPECT_LT(seconds[true], 12 * 0.25);
  ExpectAnswersOfAlone();
}

// What that costs if two clients have work for large passes all the time: each pass has a part that
// does not depend on its rows, 10 ms of 1034 or 10 ms of 138, since two of 64 rows take more than 250.
TEST_F(FairEngineTest, ShortStepsCostLittle) {
  double seconds[2];
  for (const bool limited : {false, true}) {
    options_.scheduler.max_step_s = limited ? 0.25 : 0;
    const double begin_s = clock_of_rows_.NowSeconds();
    for (uint64_t i = 0; i < 16; ++i)
      coordinator_.Start(Request(100 * limited + i + 1, i % 2 == 0 ? "a" : "b", 64, 24, 3));
    RunSteps([](int) {});
    seconds[limited] = clock_of_rows_.NowSeconds() - begin_s;
  }
  EXPECT_GT(seconds[true], seconds[false]);
  EXPECT_LT(seconds[true], 1.08 * seconds[false]);
}

}  // namespace
}  // namespace coppice::worker
