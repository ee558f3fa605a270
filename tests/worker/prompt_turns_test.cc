#include "worker/prompt_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace coppice::worker {
namespace {

// Prompts that a step reads some of. What has been read is gone from the list.
class PromptTurnsTest : public ::testing::Test {
 protected:
  struct Prompt {
    Sequence sequence;
    int left;
  };
  uint64_t Add(const std::string& client, int left, double weight = 1) {
    auto prompt = std::make_unique<Prompt>();
    prompt->sequence.id = prompt->sequence.phase_order = ++last_id_;
    prompt->sequence.client = client;
    prompt->sequence.client_weight = weight;
    prompt->left = left;
    prompts_.push_back(std::move(prompt));
    return last_id_;
  }
  bool Reads(uint64_t id) const {
    return std::any_of(prompts_.begin(), prompts_.end(),
                       [id](const auto& prompt) { return prompt->sequence.id == id; });
  }
  int Left(uint64_t id) const {
    for (const auto& prompt : prompts_) {
      if (prompt->sequence.id == id) return prompt->left;
    }
    return 0;
  }
  void Step(int tokens, int rows) {
    std::vector<WaitingPrompt> waiting;
    for (const auto& prompt : prompts_) waiting.push_back({&prompt->sequence, prompt->left});
    std::vector<uint64_t> done;
    int of_tokens = 0, of_rows = 0;
    turns_.Run(waiting, tokens, rows, [&](Sequence* sequence, int most, int room) {
      EXPECT_GT(room, 0);
      Prompt& prompt = **std::find_if(prompts_.begin(), prompts_.end(),
                                      [&](const auto& one) { return &one->sequence == sequence; });
      EXPECT_TRUE(most > 0 || prompt.left == 0);
      const int count = std::min({prompt.left, most, room});
      prompt.left -= count;
      of_tokens += count;
      const bool joins = prompt.left == 0 && count < room;
      of_rows += count + joins;
      if (joins) done.push_back(sequence->id);
      return PromptTurns::Read{count, count + joins, !joins, prompt.left};
    });
    EXPECT_LE(of_tokens, tokens);
    EXPECT_LE(of_rows, rows);
    std::erase_if(prompts_, [&](const auto& prompt) {
      return std::find(done.begin(), done.end(), prompt->sequence.id) != done.end();
    });
    EXPECT_TRUE(turns_.turns().CheckIntegrity().ok());
  }

  std::vector<std::unique_ptr<Prompt>> prompts_;
  PromptTurns turns_;
  uint64_t last_id_ = 0;
};

TEST_F(PromptTurnsTest, AShortPromptIsReadAtOnceBesideFiftyLongOnesOfAnotherClient) {
  for (int i = 0; i < 50; ++i) Add("a", 100000);
  for (int step = 0; step < 10; ++step) Step(256, 128);
  const uint64_t one_token = Add("b", 0);
  Step(256, 128);
  EXPECT_FALSE(Reads(one_token));
  // Half of each step: 299 tokens and a first round in five steps of 64 rows.
  const uint64_t longer = Add("b", 299);
  for (int step = 0; step < 4; ++step) Step(256, 128);
  EXPECT_TRUE(Reads(longer));
  Step(256, 128);
  EXPECT_FALSE(Reads(longer));
}

TEST_F(PromptTurnsTest, ClientsSharePrefillByWeight) {
  const uint64_t a = Add("a", 100000), b = Add("b", 100000, 3);
  for (int step = 0; step < 100; ++step) Step(64, 128);
  EXPECT_NEAR(100000 - Left(a), 1600, 64);
  EXPECT_NEAR(100000 - Left(b), 4800, 64);
}

TEST_F(PromptTurnsTest, AShortPromptDoesNotWaitForALongOneOfItsClient) {
  const uint64_t huge = Add("a", 100000);
  for (int step = 0; step < 10; ++step) {
    const uint64_t brief = Add("a", 63);
    Step(128, 128);
    EXPECT_FALSE(Reads(brief)) << step;
  }
  EXPECT_EQ(Left(huge), 100000 - 10 * 64);
}

TEST_F(PromptTurnsTest, NoStreamOfShortPromptsStopsALongOneOfTheirClient) {
  const uint64_t huge = Add("a", 6400);
  for (int step = 0; step < 100; ++step) {
    for (int i = 0; i < 3; ++i) Add("a", 63);  // more than fit in a step
    Step(128, 128);
  }
  EXPECT_EQ(Left(huge), 0);
}

// As many clients as rows, each with one token: all are served in as many steps as their rows need.
TEST_F(PromptTurnsTest, ManyClientsAreServedInTheirOrder) {
  std::vector<uint64_t> ids;
  for (int i = 0; i < 1000; ++i) ids.push_back(Add(std::to_string(i), 1));
  for (int step = 0; step < 20; ++step) {
    for (int i = 0; i < 50 * step; ++i) EXPECT_FALSE(Reads(ids[i]));
    Step(1000, 100);  // two rows each
  }
  EXPECT_TRUE(prompts_.empty());
}

TEST_F(PromptTurnsTest, FirstRoundsNeedNoTokensOfTheBudget) {
  Add("a", 1000);
  const uint64_t b = Add("b", 0), c = Add("a", 0);
  Step(1, 16);
  EXPECT_FALSE(Reads(b));
  EXPECT_FALSE(Reads(c));
}

TEST_F(PromptTurnsTest, APromptWithoutRoomForItsFirstRoundHasItNext) {
  const uint64_t a = Add("a", 16);
  Step(32, 16);
  EXPECT_EQ(Left(a), 0);
  EXPECT_TRUE(Reads(a));
  Step(32, 16);
  EXPECT_FALSE(Reads(a));
}

}  // namespace
}  // namespace coppice::worker
