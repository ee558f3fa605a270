// What draft nodes have used for a sequence, as their leader adds it up: all of it, or no figure.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "tests/worker/draft_client_fixture.h"

namespace coppice::worker {
namespace {

constexpr uint64_t kHere = 17, kElsewhere = 18;  // energy domains
constexpr bool kSoFar = false, kAtTheEnd = true;

class DraftEnergyTest : public DraftClientTest {
 protected:
  static DraftClientOptions Measured() {
    DraftClientOptions options;
    options.energy_domain = kHere;
    return options;
  }
  DraftEnergyTest() : DraftClientTest("direct://127.0.0.1:*", Measured()) {}

  void Join(uint64_t domain) {
    proto::DraftNodes message;
    *message.add_nodes() = node_.Announce("a");
    message.mutable_nodes(0)->set_energy_domain(domain);
    client_->SetNodes(message);
  }
  proto::DraftRequest Asked(double now_s) {
    EXPECT_EQ(Ask(now_s), NoDraftReason::kNone);
    const auto request = node_.Next(proto::DraftCommand::kDraft);
    EXPECT_TRUE(request.has_value());
    return request.value_or(proto::DraftCommand()).draft();
  }
  static proto::DraftReply Reply(const proto::DraftRequest& request, std::optional<double> joules) {
    proto::DraftReply reply = ReplyTo(request);
    if (joules) reply.set_energy_joules(*joules);
    return reply;
  }
  std::optional<double> EnergyOf(bool at_the_end) const {
    return client_->EnergyOf(sequence_.id, at_the_end);
  }
  // Reads what is on its way when no forest comes of it.
  void ReceiveNothing(double now_s) {
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(client_->Receive(now_s).empty());
      comm::Poll(client_->sockets(), 5);
    }
  }
};

TEST_F(DraftEnergyTest, AnswersAddUpAndWhatIsOutstandingIsMissingAtTheEnd) {
  EXPECT_EQ(EnergyOf(kAtTheEnd), 0);  // no draft node
  Join(kElsewhere);
  for (int round = 0; round < 3; ++round) {
    const proto::DraftRequest request = Asked(round);
    EXPECT_EQ(EnergyOf(kSoFar), 1.5 * round);
    EXPECT_EQ(EnergyOf(kAtTheEnd), std::nullopt);
    node_.Send(Reply(request, 1.5));
    ASSERT_EQ(Arrivals(round + 0.01).size(), 1u);
    EXPECT_EQ(EnergyOf(kAtTheEnd), 1.5 * (round + 1));
    Decide();
  }
}

TEST_F(DraftEnergyTest, ANodeThatDoesNotMeasureLeavesNoFigure) {
  Join(kElsewhere);
  for (const std::optional<double> joules : {std::optional<double>(), std::optional(2.0)}) {
    node_.Send(Reply(Asked(1), joules));
    ASSERT_EQ(Arrivals(1.01).size(), 1u);
    EXPECT_EQ(EnergyOf(kSoFar), std::nullopt);  // the second answer does not make it whole
    Decide();
  }
}

TEST_F(DraftEnergyTest, WhatNobodyCanHaveUsedLeavesNoFigure) {
  double now_s = 1;
  for (const double joules : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    client_->Close(sequence_.id);
    Join(kElsewhere);
    node_.Send(Reply(Asked(now_s), joules));
    ASSERT_EQ(Arrivals(now_s).size(), 1u);
    EXPECT_EQ(EnergyOf(kSoFar), std::nullopt) << joules;
    Decide();
    ++now_s;
  }
}

// It computes on what the replica's own meter counts.
TEST_F(DraftEnergyTest, ANodeOfTheSameDomainIsInTheReplicasFigure) {
  Join(kHere);
  for (const std::optional<double> joules : {std::optional<double>(), std::optional(2.0)}) {
    const proto::DraftRequest request = Asked(1);
    EXPECT_EQ(EnergyOf(kAtTheEnd), 0);
    node_.Send(Reply(request, joules));
    ASSERT_EQ(Arrivals(1.01).size(), 1u);
    EXPECT_EQ(EnergyOf(kAtTheEnd), 0);
    Decide();
  }
}

TEST_F(DraftEnergyTest, ALateAnswerCountsThoughItsForestDoesNot) {
  Join(kElsewhere);
  const proto::DraftRequest request = Asked(1);
  client_->GaveUp(sequence_.id, 1.5);
  node_.Send(Reply(request, 3));
  ReceiveNothing(1.6);
  EXPECT_EQ(EnergyOf(kAtTheEnd), 3);
  Decide();
  Asked(3);
  EXPECT_EQ(EnergyOf(kAtTheEnd), std::nullopt);
  node_.Send(Reply(request, 4));  // of an old round: the new one is outstanding
  ReceiveNothing(3.1);
  EXPECT_EQ(EnergyOf(kSoFar), 7);
  EXPECT_EQ(EnergyOf(kAtTheEnd), std::nullopt);
}

TEST_F(DraftEnergyTest, AReadPromptIsToldWithoutARequest) {
  Join(kElsewhere);
  client_->Open(sequence_);
  EXPECT_EQ(EnergyOf(kAtTheEnd), std::nullopt);
  const auto open = node_.Next(proto::DraftCommand::kOpen);
  ASSERT_TRUE(open.has_value());
  proto::DraftReply reply;
  reply.set_session_id(open->open().session_id());
  reply.set_prefilled(true);
  reply.set_energy_joules(5);
  node_.Send(reply);
  ReceiveNothing(1);
  EXPECT_EQ(EnergyOf(kAtTheEnd), 5);
  const proto::DraftRequest request = Asked(2);
  node_.Send(reply);  // crosses the request
  ReceiveNothing(2);
  EXPECT_EQ(EnergyOf(kAtTheEnd), std::nullopt);
  node_.Send(Reply(request, 1));
  ASSERT_EQ(Arrivals(2.1).size(), 1u);
  EXPECT_EQ(EnergyOf(kAtTheEnd), 11);
}

TEST_F(DraftEnergyTest, ANodeThatRefusesTellsWhatItUsed) {
  Join(kElsewhere);
  proto::DraftReply refusal;
  refusal.set_session_id(Asked(1).session_id());
  refusal.set_error("no room");
  refusal.set_energy_joules(2);
  node_.Send(refusal);
  const auto arrivals = Arrivals(1.1);
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_EQ(arrivals[0].failed, NoDraftReason::kRefused);
  EXPECT_EQ(EnergyOf(kAtTheEnd), 2);
}

TEST_F(DraftEnergyTest, WhatANodeThatIsGoneHasUsedIsNotKnown) {
  Join(kElsewhere);
  node_.Send(Reply(Asked(1), 2));
  ASSERT_EQ(Arrivals(1.1).size(), 1u);
  Decide();
  client_->SetNodes(proto::DraftNodes());  // it has told everything
  EXPECT_EQ(EnergyOf(kAtTheEnd), 2);
  Join(kElsewhere);
  EXPECT_EQ(Ask(2), NoDraftReason::kReading);
  client_->SetNodes(proto::DraftNodes());
  EXPECT_EQ(EnergyOf(kSoFar), std::nullopt);
}

}  // namespace
}  // namespace coppice::worker
