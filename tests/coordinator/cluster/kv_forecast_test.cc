// What sequences are expected to use follows what others of their kind have used.
#include "coordinator/cluster/kv_forecast.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/coordinator/cluster/dispatcher_fixture.h"

namespace coppice::coordinator {
namespace {

GenerateRequest Chat(int max_tokens, int beams = 1) {
  GenerateRequest request;
  request.max_tokens_given = true;
  request.params.max_tokens = max_tokens;
  request.params.beam_width = beams;
  if (beams > 1) request.params.kind = sampling::DecodingKind::kBeamSearch;
  return request;
}

TEST(KvForecastTest, ItIsTheBoundUntilSomeHaveEnded) {
  KvForecast forecast(0.8);
  const GenerateRequest chat = Chat(2000);
  const KvBounds bounds{10, 150};
  for (int i = 0; i < KvForecast::kLeast; ++i) {
    EXPECT_EQ(forecast.Expect(chat, bounds), 150);
    forecast.Record(chat, bounds, 24);
  }
  EXPECT_EQ(forecast.Expect(chat, bounds), 24);
  EXPECT_EQ(forecast.Expect(chat, {100, 240}), 114);  // a longer prompt
}

TEST(KvForecastTest, FourInFiveAreCovered) {
  KvForecast forecast(0.8);
  const KvBounds bounds{0, 1000};
  for (int used = 1; used <= 40; ++used) forecast.Record(Chat(2000), bounds, 10 * used);
  EXPECT_NEAR(forecast.Expect(Chat(2000), bounds), 320, 10);
  for (int i = 0; i < KvForecast::kKept; ++i) forecast.Record(Chat(2000), bounds, 50);
  EXPECT_EQ(forecast.Expect(Chat(2000), bounds), 50);  // the past is forgotten
}

TEST(KvForecastTest, WhatIsCoveredIsChosen) {
  KvForecast careful(1), bold(0);
  const KvBounds bounds{0, 1000};
  for (int used = 1; used <= 10; ++used) {
    for (KvForecast* forecast : {&careful, &bold}) forecast->Record(Chat(2000), bounds, 10 * used);
  }
  EXPECT_EQ(careful.Expect(Chat(2000), bounds), 100);
  EXPECT_EQ(bold.Expect(Chat(2000), bounds), 10);
}

TEST(KvForecastTest, KindsAreApart) {
  KvForecast forecast(0.8);
  const KvBounds bounds{0, 100};
  for (int i = 0; i < KvForecast::kLeast; ++i) forecast.Record(Chat(2000), bounds, 5);
  EXPECT_EQ(forecast.Expect(Chat(1500), bounds), 5);
  EXPECT_EQ(forecast.Expect(Chat(100), bounds), 100);
  EXPECT_EQ(forecast.Expect(Chat(2000, 4), bounds), 100);
  GenerateRequest by_default = Chat(2000);
  by_default.max_tokens_given = false;
  EXPECT_EQ(forecast.Expect(by_default, bounds), 100);
}

TEST(KvForecastTest, ItStaysWithinTheBounds) {
  KvForecast forecast(0.8);
  for (int i = 0; i < KvForecast::kLeast; ++i) forecast.Record(Chat(100), {10, 20}, 1000);
  EXPECT_EQ(forecast.Expect(Chat(100), {10, 20}), 20);
  for (int i = 0; i < KvForecast::kKept; ++i) forecast.Record(Chat(100), {10, 20}, 1);
  EXPECT_EQ(forecast.Expect(Chat(100), {10, 20}), 10);
}

class ExpectedKvTest : public DispatcherTest {
 protected:
  ExpectedKvTest() : DispatcherTest(Roomy()) {}
  static DispatcherOptions Roomy() {
    DispatcherOptions options = Options();
    options.max_queue = 100;
    return options;
  }
  void FinishWithPeak(uint64_t id, int64_t peak) {
    proto::NodeMessage message;
    proto::SequenceUpdate* update = message.mutable_progress()->add_updates();
    update->set_sequence_id(id);
    update->set_finished(true);
    update->set_kv_blocks_peak(static_cast<uint64_t>(peak));
    *update->add_hypotheses() = MakeHypothesis(Bytes("ok", true), -1, true);
    *update->mutable_stats() = MakeStats();
    dispatcher_.OnNodeMessage("replica-0", message);
  }
};

// Requests that could need a quarter of the pool each, and use little of it.
TEST_F(ExpectedKvTest, MoreRunWhenTheyAreKnownToNeedLittle) {
  const GenerateRequest chat = Chat(200);
  const int64_t bound = KvBoundsOf(chat, 2, {}).most;
  JoinReplica("replica-0", 4 * bound);
  for (int i = 0; i < 20; ++i) Submit(chat);
  EXPECT_EQ(Started("replica-0").size(), 3u);  // the last eighth is for other clients
  for (int i = 0; i < 6; ++i) FinishWithPeak(Started("replica-0")[i], 4);
  EXPECT_EQ(Started("replica-0").size(), 20u);
  for (const auto& [peer, message] : sent_) {
    if (!message.has_start()) continue;
    const auto expected = static_cast<int64_t>(message.start().expected_kv_blocks());
    EXPECT_TRUE(expected == bound || expected == 4) << expected;
  }
}

// 20 blocks of each prompt are the same.
TEST_F(ExpectedKvTest, MoreRunBehindOnePromptThanBehindManyOfTheirOwn) {
  const int64_t alone = KvBoundsOf(Chat(10), 328, {}).most, all = alone + 19 * (alone - 20);
  for (const bool common : {true, false}) {
    const std::string replica = common ? "replica-0" : "replica-1";
    if (!common) registry_.SetDraining("replica-0", true);
    JoinReplica(replica, (all * 8 + 6) / 7);  // the last eighth is for other clients
    for (int i = 0; i < 20; ++i) {
      GenerateRequest chat = Chat(10);
      chat.prompts = {std::vector<TokenId>(328, common ? 1 : i + 2)};
      chat.prompts[0][325] = i;
      Submit(chat);
    }
    const std::vector<uint64_t> started = Started(replica);
    EXPECT_EQ(started.size(), common ? 20u : static_cast<size_t>(all / alone));
    EXPECT_EQ(dispatcher_.router().reserved(replica), common ? all : all / alone * alone);
    for (size_t i = 0; i < 20; ++i) Finish(replica, Started(replica).at(i));
    EXPECT_EQ(dispatcher_.router().reserved(replica), 0);
  }
}

TEST_F(ExpectedKvTest, LowerValuesOfPriorityGoFirst) {
  GenerateRequest chat = Chat(200);
  JoinReplica("replica-0", KvBoundsOf(chat, 2, {}).most);
  for (const int priority : {0, 5, 0, -3}) {
    chat.priority = priority;
    Submit(chat);
  }
  for (int i = 0; i < 4; ++i) Finish("replica-0", Started("replica-0").at(i));
  std::vector<int> order;
  for (const auto& [peer, message] : sent_) {
    if (message.has_start()) order.push_back(message.start().priority());
  }
  EXPECT_EQ(order, (std::vector<int>{0, -3, 0, 5}));
}

}  // namespace
}  // namespace coppice::coordinator
