// The draft node with an EAGLE-3 head, over many rounds: every forest is the one that the head grows
// from the target's states of all known tokens, whatever the session has seen before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/draft_node/head_fixture.h"

namespace coppice::draft_node {
namespace {

Tokens RandomTokens(int count, std::mt19937* rng) {
  Tokens tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>((*rng)() % kVocab));
  return tokens;
}

class HeadRoundsTest : public HeadServiceTest {
 protected:
  static const HeadCase& head_case() {
    return *std::find_if(std::begin(kHeadCases), std::end(kHeadCases),
                         [](const HeadCase& c) { return std::string(c.method) == GetParam(); });
  }
  decoding::DecodingParams params() const {
    decoding::DecodingParams params = ParamsOf(head_case());
    params.sampling.frequency_penalty = penalty_;
    return params;
  }
  LeaderSession Begin(uint64_t id, Tokens prompt) {
    LeaderSession session;
    session.id = id;
    session.sequence.prompt = std::move(prompt);
    for (int root = 0; root < head_case().beams; ++root) session.sequence.roots.push_back({root});
    return session;
  }
  void AskAlone(LeaderSession* session, int depth) { Ask(session, head_case().width, depth); }
  // The forest that answers the session's last request.
  decoding::DraftForest Take(LeaderSession* session) {
    const auto reply = Reply();
    EXPECT_TRUE(reply.has_value());
    if (!reply) return {};
    EXPECT_EQ(reply->error(), "");
    EXPECT_EQ(reply->session_id(), session->id);
    EXPECT_EQ(reply->round(), session->round);
    EXPECT_EQ(reply->forest().SerializeAsString(), Recomputed(*session, params()))
        << "round " << session->round;
    Answered(session->sequence, session->asked, &session->known);
    const auto forest = proto::ForestFromMessage(reply->forest(), kVocab);
    EXPECT_TRUE(forest.ok()) << forest.status();
    return forest.ok() ? *forest : decoding::DraftForest();
  }
  std::mt19937 rng_{20261129};
  double penalty_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Methods, HeadRoundsTest,
                         ::testing::Values("gumbel_coupling", "dsbd", "block_verification",
                                           "recursive_rejection"),
                         [](const auto& info) { return std::string(info.param); });

// Most tokens of the next roots were drafted, and none of that KV may be found again.
TEST_P(HeadRoundsTest, EveryForestIsGrownFromTheTargetsStates) {
  LeaderSession session = Begin(1, RandomTokens(37, &rng_));
  OpenSession(session, params());
  for (int round = 0; round < 12; ++round) {
    AskAlone(&session, 3);
    const decoding::DraftForest forest = Take(&session);
    ASSERT_FALSE(HasFailure());
    session.sequence.Advance(forest, 1 + static_cast<int>(rng_() % 4), kVocab, &rng_);
  }
  EXPECT_TRUE(runner_->blocks()->CheckIntegrity().ok());
}

// Lost: the leader goes on without the answer, and sends the states of its rows again. Replaced: the
// next request comes before the node has begun, or between the levels of the forest.
TEST_P(HeadRoundsTest, RoundsMayBeLostReplacedOrCutShort) {
  LeaderSession session = Begin(1, RandomTokens(20, &rng_));
  OpenSession(session, params());
  decoding::DraftForest forest;
  for (int round = 0; round < 30; ++round) {
    switch (rng_() % 4) {
      case 0:  // replaced before its first level
        leaders_->Gather(2);
        AskAlone(&session, 3);
        session.known.clear();
        session.sequence.Advance(forest, 1 + static_cast<int>(rng_() % 2), kVocab, &rng_);
        break;
      case 1:  // replaced after its first level
        AskAlone(&session, 3);
        session.known.clear();
        for (const uint64_t steps = runner_->steps(); runner_->steps() == steps;)
          ASSERT_TRUE(service_->RunOnce(2).ok());
        session.sequence.Advance(forest, 2, kVocab, &rng_);
        break;
      case 2:  // the answer is lost
        AskAlone(&session, 2);
        ASSERT_TRUE(Reply().has_value());
        session.known.clear();
        session.sequence.Advance(forest, 1, kVocab, &rng_);
        break;
    }
    AskAlone(&session, 2);
    forest = Take(&session);
    ASSERT_FALSE(HasFailure()) << "round " << round;
    session.sequence.Advance(forest, 1 + static_cast<int>(rng_() % 3), kVocab, &rng_);
  }
  EXPECT_TRUE(runner_->blocks()->CheckIntegrity().ok());
}

// The leader does not send the states of rows again that an answered request had.
TEST_P(HeadRoundsTest, ARequestThatIsReplacedLosesNoKnownRows) {
  LeaderSession session = Begin(1, RandomTokens(20, &rng_));
  OpenSession(session, params());
  for (int round = 0; round < 8; ++round) {
    AskAlone(&session, 2);
    const decoding::DraftForest forest = Take(&session);
    ASSERT_FALSE(HasFailure());
    session.sequence.Advance(forest, 1 + static_cast<int>(rng_() % 2), kVocab, &rng_);
    leaders_->Gather(2);
    AskAlone(&session, 2);  // the next one comes before its first pass
    session.sequence.Advance(forest, 1, kVocab, &rng_);
  }
  AskAlone(&session, 2);
  Take(&session);
}

// The first token has no row, but counts: here it is the whole prompt.
TEST_P(HeadRoundsTest, PenaltiesCountAllTokens) {
  penalty_ = 1.5;
  LeaderSession session = Begin(1, {3});
  OpenSession(session, params());
  for (int round = 0; round < 8; ++round) {
    AskAlone(&session, 2);
    session.sequence.Advance(Take(&session), 1 + static_cast<int>(rng_() % 3), kVocab, &rng_);
    ASSERT_FALSE(HasFailure());
  }
}

// With 12 rows to a pass the levels of a forest are some passes apart, and prompts are read between
// them.
TEST_P(HeadRoundsTest, SessionsShareThePasses) {
  Serve(/*max_rows=*/12, /*prefill_chunk=*/5);
  std::vector<LeaderSession> sessions;
  const Tokens beginning = RandomTokens(33, &rng_);
  for (uint64_t id = 1; id <= 4; ++id) {
    Tokens prompt = beginning;
    const Tokens rest = RandomTokens(6, &rng_);
    prompt.insert(prompt.end(), rest.begin(), rest.end());
    if (id == 4) prompt = {5};
    sessions.push_back(Begin(id, std::move(prompt)));
  }
  for (const LeaderSession& session : sessions) OpenSession(session, params());
  for (int round = 0; round < 6; ++round) {
    for (LeaderSession& session : sessions) {
      // States of a prompt come in several messages.
      for (int end = 10; end < static_cast<int>(session.sequence.prompt.size()); end += 9)
        SendStates(&session, session.sequence.prompt, end);
    }
    leaders_->Gather(sessions.size());
    for (LeaderSession& session : sessions) AskAlone(&session, 3);
    for (size_t replies = 0; replies < sessions.size(); ++replies) {
      const auto reply = Reply();
      ASSERT_TRUE(reply.has_value());
      ASSERT_EQ(reply->error(), "");
      LeaderSession& session = sessions[reply->session_id() - 1];
      EXPECT_EQ(reply->forest().SerializeAsString(), Recomputed(session, params()))
          << "session " << session.id << ", round " << round;
      Answered(session.sequence, session.asked, &session.known);
      session.sequence.Advance(*proto::ForestFromMessage(reply->forest(), kVocab),
                               1 + static_cast<int>(rng_() % 3), kVocab, &rng_);
    }
  }
  EXPECT_GT(runner_->blocks()->cache_hits(), 0u);
  EXPECT_TRUE(runner_->blocks()->CheckIntegrity().ok());
}

TEST_P(HeadRoundsTest, ASessionMayBeginInTheMiddle) {
  LeaderSession session = Begin(1, RandomTokens(18, &rng_));
  const Tokens before = RandomTokens(21, &rng_);
  for (Tokens& root : session.sequence.roots)
    root.insert(root.begin(), before.begin(), before.end());
  OpenSession(session, params(), before);
  session.stable_sent = before.size();
  Tokens tokens = session.sequence.prompt;
  tokens.insert(tokens.end(), before.begin(), before.end());
  for (const int end : {7, 19, 30, static_cast<int>(tokens.size())})
    SendStates(&session, tokens, end);
  takes_prefilled_ = true;
  const auto read = Reply();
  ASSERT_TRUE(read.has_value());
  EXPECT_TRUE(read->prefilled()) << read->error();
  takes_prefilled_ = false;
  const uint64_t steps = runner_->steps();
  AskAlone(&session, 2);
  session.sequence.Advance(Take(&session), 2, kVocab, &rng_);
  EXPECT_EQ(runner_->steps(), steps + 2);
  AskAlone(&session, 2);
  Take(&session);
}

// The same tokens, so the KV of the first session's prefix serves the second.
TEST_P(HeadRoundsTest, WhatTheCacheHasIsThatOfTheTargetsStates) {
  LeaderSession first = Begin(1, RandomTokens(20, &rng_));
  OpenSession(first, params());
  for (int round = 0; round < 14; ++round) {
    AskAlone(&first, 3);
    first.sequence.Advance(Take(&first), 3, kVocab, &rng_);
    ASSERT_FALSE(HasFailure());
  }
  LeaderSession second = Begin(2, first.sequence.prompt);
  const Tokens stable = first.sequence.Stable();
  ASSERT_GE(first.sequence.prompt.size() + stable.size(), 48u);
  second.sequence.prompt.insert(second.sequence.prompt.end(), stable.begin(), stable.end());
  OpenSession(second, params());
  const uint64_t hits = runner_->blocks()->cache_hits();
  AskAlone(&second, 3);
  Take(&second);
  EXPECT_GE(runner_->blocks()->cache_hits() - hits, 32u);
}

// Blocks for little more than one sequence.
TEST_P(HeadRoundsTest, AfterTheKvRanOutANewSessionBeginsAnew) {
  const size_t block = runner_->kv_pool()->bytes / runner_->kv_pool()->shape.blocks;
  service_.reset();
  test::TempDir dir;
  runner_ = LoadTinyHead(dir.path(), single_.get(), static_cast<int64_t>(10 * block));
  Serve(/*max_rows=*/64, /*prefill_chunk=*/16);
  int failures = 0;
  uint64_t id = 0;
  LeaderSession session;
  for (int round = 0; round < 40; ++round) {
    if (session.id == 0) {
      session = Begin(++id, RandomTokens(60, &rng_));
      OpenSession(session, params());
    }
    AskAlone(&session, 3);
    const auto reply = Reply();
    ASSERT_TRUE(reply.has_value());
    if (!reply->error().empty()) {
      EXPECT_THAT(reply->error(), ::testing::HasSubstr("block"));
      ++failures;
      session = LeaderSession();
      continue;
    }
    EXPECT_EQ(reply->forest().SerializeAsString(), Recomputed(session, params()));
    Answered(session.sequence, session.asked, &session.known);
    session.sequence.Advance(*proto::ForestFromMessage(reply->forest(), kVocab), 4, kVocab, &rng_);
  }
  EXPECT_GT(failures, 0);
  EXPECT_TRUE(runner_->blocks()->CheckIntegrity().ok());
}

}  // namespace
}  // namespace coppice::draft_node
