// Turns between clients, places in the queue, and waits that cannot end in time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/coordinator/cluster/dispatcher_fixture.h"

namespace coppice::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FairnessTest : public DispatcherTest {
 protected:
  explicit FairnessTest(int max_queue_per_client = 0)
      : DispatcherTest(Roomy(max_queue_per_client)) {}
  static DispatcherOptions Roomy(int max_queue_per_client) {
    DispatcherOptions options = Options();
    options.max_queue = 600;
    options.max_queue_per_client = max_queue_per_client;
    return options;
  }
  // A request of 10 blocks, or with beams of more.
  std::shared_ptr<FakeExchange> Send(const std::string& client, double timeout_s = 60,
                                     int beams = 1, double weight = 1) {
    GenerateRequest generate;
    generate.timeout_s = timeout_s;
    if (beams > 1) {
      generate.params.kind = sampling::DecodingKind::kBeamSearch;
      generate.params.beam_width = beams;
    }
    return Submit(generate, {client, weight});
  }
  static int64_t BlocksFor(int beams) {
    decoding::DecodingParams params;
    if (beams > 1) params.kind = sampling::DecodingKind::kBeamSearch;
    params.beam_width = beams;
    params.max_tokens = 16;
    return decoding::KvPagesBound(params, /*prompt_tokens=*/2, {});
  }
  // The clients of the sequences started on the replica, in order.
  std::vector<std::string> Clients() const {
    std::vector<std::string> clients;
    for (const auto& [peer, message] : sent_) {
      if (message.has_start()) clients.push_back(message.start().client());
    }
    return clients;
  }
  int CountOf(const std::string& client) const {
    const std::vector<std::string> clients = Clients();
    return static_cast<int>(std::count(clients.begin(), clients.end(), client));
  }
  // Ends the oldest running sequence, which frees its place for the next.
  void FinishOldest() { Finish("replica-0", Started("replica-0")[finished_++]); }
  static std::string CodeOf(const FakeExchange& exchange) {
    return exchange.reply ? exchange.body().value("/error/code"_json_pointer, "") : "";
  }
  static int RetryAfterOf(const FakeExchange& exchange) {
    for (const auto& [name, value] : exchange.reply->headers) {
      if (name == "Retry-After") return std::stoi(value);
    }
    return 0;
  }
  size_t finished_ = 0;
};

TEST_F(FairnessTest, FiveHundredRequestsOfOneClientDelayAnothersByOneTurn) {
  JoinReplica("replica-0", /*blocks=*/25);  // two run at a time
  for (int i = 0; i < 500; ++i) Send("flood");
  Send("b");
  Send("b");
  FinishOldest();
  FinishOldest();
  FinishOldest();
  EXPECT_THAT(Clients(), ElementsAre("flood", "flood", "flood", "b", "flood"));
  FinishOldest();
  EXPECT_EQ(Clients().back(), "b");
}

TEST_F(FairnessTest, TheWorkerLearnsWhoAsks) {
  JoinReplica("replica-0");
  Send("alice", 60, 1, 2.5);
  const proto::StartSequence& start = sent_.back().second.start();
  EXPECT_EQ(start.client(), "alice");
  EXPECT_EQ(start.client_weight(), 2.5);
}

TEST_F(FairnessTest, AClientOfTwiceTheWeightIsServedTwiceAsMuch) {
  JoinReplica("replica-0", /*blocks=*/25);
  for (int i = 0; i < 40; ++i) Send("light");
  for (int i = 0; i < 40; ++i) Send("heavy", 60, 1, 2);
  for (int i = 0; i < 30; ++i) FinishOldest();
  EXPECT_NEAR(CountOf("heavy"), 20, 2);
  EXPECT_NEAR(CountOf("light"), 12, 2);
}

// The eight fill the blocks but the last eighth.
TEST_F(FairnessTest, HugeRequestsOfOneClientLeaveRoomForAnothersSmallOne) {
  JoinReplica("replica-0", 8 * BlocksFor(/*beams=*/64));
  for (int i = 0; i < 8; ++i) Send("huge", 60, 64);
  EXPECT_EQ(CountOf("huge"), 7);
  Send("small");
  EXPECT_EQ(CountOf("small"), 1);
  Finish("replica-0", Started("replica-0").back());
  EXPECT_EQ(CountOf("huge"), 7);
  FinishOldest();
  EXPECT_EQ(CountOf("huge"), 8);
}

// A huge request of a client that holds nothing is passed by no more than a pool of blocks. After that
// others get what it leaves.
TEST_F(FairnessTest, SmallRequestsPassAHugeOneOnlySoLong) {
  const int64_t huge = BlocksFor(/*beams=*/64), pool = huge + 30;
  ASSERT_GT(huge, 60);
  JoinReplica("replica-0", pool);
  for (int i = 0; i < 4; ++i) Send(absl::StrCat("first-", i));
  Send("huge", 60, 64);
  for (int i = 0; i < 200; ++i) Send(absl::StrCat("c", i));
  EXPECT_EQ(CountOf("huge"), 0);
  EXPECT_EQ(CountOf("c0"), 1);
  while (CountOf("huge") == 0 && finished_ < Clients().size()) FinishOldest();
  EXPECT_EQ(CountOf("huge"), 1);
  const int64_t small = static_cast<int64_t>(Clients().size()) - 4 - 1;
  EXPECT_GE(small * 10, pool);
  EXPECT_LT(small * 10, pool + 10 + (pool - huge));
}

TEST_F(FairnessTest, ALoneRequestOfTheWholeReplicaIsServed) {
  JoinReplica("replica-0", BlocksFor(/*beams=*/1));
  Send("a");
  Send("a");
  EXPECT_EQ(CountOf("a"), 1);
  FinishOldest();
  EXPECT_EQ(CountOf("a"), 2);
}

TEST_F(FairnessTest, ManySequencesOfOneRequestTakeTurnsWithOthers) {
  JoinReplica("replica-0", /*blocks=*/45);  // four
  GenerateRequest many;
  many.n = many.samples = 20;
  Submit(many, {"many"});
  Send("b");
  Send("b");
  FinishOldest();
  FinishOldest();
  FinishOldest();
  FinishOldest();
  EXPECT_EQ(CountOf("b"), 2);
}

TEST_F(FairnessTest, AFullQueueRefusesTheNewestOfTheClientWithMost) {
  JoinReplica("replica-0", /*blocks=*/12);  // one
  std::vector<std::shared_ptr<FakeExchange>> flood;
  for (int i = 0; i < 601; ++i) flood.push_back(Send("flood"));
  EXPECT_EQ(dispatcher_.waiting(), 600);
  EXPECT_EQ(CodeOf(*Send("flood")), "queue_full");
  const auto other = Send("b");
  EXPECT_FALSE(other->reply);
  EXPECT_EQ(dispatcher_.waiting(), 600);
  EXPECT_EQ(flood.back()->reply->status, 429);
  EXPECT_EQ(CodeOf(*flood.back()), "queue_full");
  EXPECT_GE(RetryAfterOf(*flood.back()), 1);
  EXPECT_FALSE(flood[599]->reply);
  FinishOldest();
  EXPECT_EQ(Clients().back(), "flood");  // it came first
  FinishOldest();
  EXPECT_EQ(Clients().back(), "b");
}

// So two clients do not refuse each other's requests by turns.
TEST_F(FairnessTest, AFullQueueOfEqualClientsRefusesTheNewcomer) {
  JoinReplica("replica-0", /*blocks=*/12);
  std::vector<std::shared_ptr<FakeExchange>> sent;
  for (int i = 0; i < 601; ++i) sent.push_back(Send(i % 2 == 0 ? "a" : "b"));
  EXPECT_EQ(CodeOf(*Send("a")), "queue_full");
  EXPECT_EQ(CodeOf(*Send("b")), "queue_full");
  for (const auto& exchange : sent) EXPECT_FALSE(exchange->reply);
}

// The rate is learnt from what ends while others wait: one in a second.
TEST_F(FairnessTest, AWaitThatCannotEndInTimeIsRefusedAtOnce) {
  JoinReplica("replica-0", /*blocks=*/12);
  for (int i = 0; i < 100; ++i) Send("flood", /*timeout_s=*/600);
  EXPECT_FALSE(Send("flood", /*timeout_s=*/5)->reply);  // nothing is known yet
  for (int i = 0; i < 20; ++i) {
    clock_.now_s += 1;
    Beat("replica-0");
    dispatcher_.Tick();
    FinishOldest();
  }
  const auto refused = Send("flood", /*timeout_s=*/20);  // 80 s of work come before it
  EXPECT_EQ(CodeOf(*refused), "queue_timeout");
  EXPECT_EQ(refused->reply->status, 429);
  EXPECT_EQ(RetryAfterOf(*refused), 60);
  EXPECT_FALSE(Send("flood", /*timeout_s=*/60)->reply);
  EXPECT_FALSE(Send("b", /*timeout_s=*/5)->reply);  // it is next
  EXPECT_THAT(metrics_.Text(),
              HasSubstr("coppice_request_refused_total{code=\"queue_timeout\",model_name=\"demo\"} "
                        "1\n"));
}

TEST_F(FairnessTest, ADeadlineInTheQueueIsToldFromOneOfWhatRuns) {
  JoinReplica("replica-0", /*blocks=*/12);
  const auto runs = Send("a", /*timeout_s=*/2);
  const auto waits = Send("a", /*timeout_s=*/1);
  clock_.now_s = 1.2;
  Beat("replica-0");
  dispatcher_.Tick();
  ASSERT_TRUE(waits->reply);
  EXPECT_EQ(waits->reply->status, 429);
  EXPECT_EQ(CodeOf(*waits), "queue_timeout");
  EXPECT_THAT(waits->reply->body, HasSubstr("waited in the queue"));
  EXPECT_GE(RetryAfterOf(*waits), 1);
  clock_.now_s = 2.2;
  Beat("replica-0");
  dispatcher_.Tick();
  EXPECT_EQ(CodeOf(*runs), "deadline_exceeded");
}

class ClientLimitTest : public FairnessTest {
 protected:
  ClientLimitTest() : FairnessTest(/*max_queue_per_client=*/3) {}
};

TEST_F(ClientLimitTest, AClientHasOnlySoManyPlaces) {
  JoinReplica("replica-0", /*blocks=*/12);
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(Send("a")->reply);
  const auto refused = Send("a");
  EXPECT_EQ(CodeOf(*refused), "queue_full");
  EXPECT_THAT(refused->reply->body, HasSubstr("this client has 3 waiting requests"));
  EXPECT_FALSE(Send("b")->reply);
  FinishOldest();
  EXPECT_FALSE(Send("a")->reply);
}

}  // namespace
}  // namespace coppice::coordinator
