// The draft node's loop with a tiny model on a real socket: what it answers to leaders, and in which
// order. What it refuses: draft_refusals_test.cc.
#include "draft_node/draft_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "decoding/method.h"
#include "tests/draft_node/draft_service_fixture.h"

namespace coppice::draft_node {
namespace {

INSTANTIATE_TEST_SUITE_P(Transports, DraftServiceTest, kTransports, TransportName);

TEST_P(DraftServiceTest, PrefillsInChunksThenAnswersWithALegalForest) {
  Open(1, 50);
  Send(Request(1, 1, {}, 0, 5));
  const auto reply = Reply();
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->error(), "");
  EXPECT_EQ(reply->round(), 1u);
  const auto forest = proto::ForestFromMessage(reply->forest(), kVocab);
  ASSERT_TRUE(forest.ok()) << forest.status();
  EXPECT_EQ(forest->depth(), 2);
  EXPECT_EQ(forest->size(), 6);
  EXPECT_TRUE(runner_->blocks()->CheckIntegrity().ok());
}

// The chunk of a pass is 16 tokens.
TEST_P(DraftServiceTest, PromptsThatBeginAlikeAreReadOnce) {
  Open(1, 50);
  Open(2, 50);
  Send(Request(1, 1, {}, 0, 5));
  Send(Request(2, 1, {}, 0, 5));
  const auto one = Reply(), other = Reply();
  ASSERT_TRUE(one.has_value() && other.has_value());
  ASSERT_EQ(one->error() + other->error(), "");
  EXPECT_EQ(one->session_id() + other->session_id(), 3u);
  EXPECT_EQ(one->forest().SerializeAsString(), other->forest().SerializeAsString());
  EXPECT_EQ(runner_->blocks()->cache_hits(), 48u);
  EXPECT_TRUE(runner_->blocks()->CheckIntegrity().ok());
}

// All but the last token of it come from the cache, so no pass reads it.
TEST_P(DraftServiceTest, APromptThatWasReadBeforeIsNotReadAgain) {
  Open(1, 32);
  Send(Request(1, 1, {}, 0, 5));
  const auto first = Reply();
  Send(Request(1, 2, {5, 7}, 0, 9));
  ASSERT_TRUE(Reply().has_value());
  const int64_t steps = runner_->steps();
  Open(2, 32);
  Send(Request(2, 1, {}, 0, 5));
  const auto second = Reply();
  ASSERT_TRUE(first.has_value() && second.has_value());
  ASSERT_EQ(first->error() + second->error(), "");
  EXPECT_EQ(first->forest().SerializeAsString(), second->forest().SerializeAsString());
  EXPECT_EQ(runner_->steps(), steps + 2);  // the levels of the forest
  EXPECT_EQ(runner_->blocks()->cache_hits(), 31u);
  EXPECT_TRUE(runner_->blocks()->CheckIntegrity().ok());
}

TEST_P(DraftServiceTest, SaysOnceThatAPromptIsReadIfNoRequestWaitsForIt) {
  Open(1, 50);
  Open(2, 1);
  for (int i = 0; i < 5000 && runner_->steps() < 4; ++i) {
    ASSERT_TRUE(service_->RunOnce(2).ok());
  }
  Send(Request(1, 1, {}, 0, 3));
  auto reply = Reply();
  ASSERT_TRUE(reply.has_value());
  EXPECT_GT(reply->forest().token_size(), 0);
  EXPECT_EQ(prefilled(), 2);
  Send(Request(1, 2, {}, 0, 4));
  ASSERT_TRUE(Reply().has_value());
  EXPECT_EQ(prefilled(), 0);
}

TEST_P(DraftServiceTest, DoesNotSayThatAPromptIsReadWhereARequestWaitsForIt) {
  leaders_->Gather(2);
  Open(1, 50);
  Send(Request(1, 1, {}, 0, 3));
  ASSERT_TRUE(Reply().has_value());
  EXPECT_EQ(prefilled(), 0);
}

TEST_P(DraftServiceTest, EveryStepMovesTheClockOn) {
  Open(1, 50);
  Send(Request(1, 1, {}, 0, 5));
  ASSERT_TRUE(Reply().has_value());
  const ProgressReport report = runner_->progress_watchdog()->Look(/*longest_gap_s=*/3600);
  EXPECT_GE(report.steps, 3);  // prefill and two levels
  EXPECT_GT(report.longest_stall_s, 0);
}

TEST_P(DraftServiceTest, TheSameQuestionHasTheSameAnswerWhateverTheSessionSawBefore) {
  Open(1, 20);
  Send(Request(1, 1, {}, 0, 5));
  ASSERT_TRUE(Reply().has_value());
  Send(Request(1, 2, {5, 7}, 0, 9));  // 7 may or may not have been drafted
  const auto warm = Reply();
  Open(2, 20);
  Send(Request(2, 1, {5, 7}, 0, 9));  // a late session, which gets all stable tokens at once
  const auto cold = Reply();
  ASSERT_TRUE(warm.has_value() && cold.has_value());
  ASSERT_EQ(warm->error() + cold->error(), "");
  EXPECT_EQ(warm->forest().SerializeAsString(), cold->forest().SerializeAsString());
}

TEST_P(DraftServiceTest, StableTokensThatTheSessionHasAlreadyAreNotTakenTwice) {
  Open(1, 20);
  Send(Request(1, 1, {5, 7}, 0, 9));
  ASSERT_TRUE(Reply().has_value());
  Send(Request(1, 2, {5, 7, 9}, 1, 11));  // sends 7 again
  const auto repeated = Reply();
  Open(2, 20);
  Send(Request(2, 1, {5, 7, 9}, 0, 11));
  const auto once = Reply();
  ASSERT_TRUE(repeated.has_value() && once.has_value());
  ASSERT_EQ(repeated->error() + once->error(), "");
  EXPECT_EQ(repeated->forest().SerializeAsString(), once->forest().SerializeAsString());
}

TEST_P(DraftServiceTest, TokensBetweenThePrefixAndARootAreRun) {
  decoding::DecodingParams params;
  params.kind = sampling::DecodingKind::kBeamSampling;
  params.method = decoding::FindMethod("dsbd");  // its forests hold the draft model's distributions
  params.beam_width = 2;
  Open(1, 20, params);
  for (uint32_t round = 1; round <= 2; ++round) {  // so that both tokens have been roots
    Send(Request(1, round, {}, 0, 4 + static_cast<int>(round)));
    ASSERT_EQ(Reply()->error(), "");
  }
  Send(AskBelowTwoBranches(Request(1, 3, {}, 0, 0)));
  const auto warm = Reply();
  Open(2, 20, params);
  Send(AskBelowTwoBranches(Request(2, 1, {}, 0, 0)));
  const auto cold = Reply();
  ASSERT_TRUE(warm.has_value() && cold.has_value());
  ASSERT_EQ(warm->error() + cold->error(), "");
  EXPECT_GT(cold->forest().proposal_size(), 0);
  EXPECT_EQ(warm->forest().SerializeAsString(), cold->forest().SerializeAsString());
}

TEST_P(DraftServiceTest, AForestLeavesNothingBehindForTheNextRound) {
  Open(1, 30);
  int64_t used = 0;
  for (uint32_t round = 1; round <= 20; ++round) {
    Send(Request(1, round, {}, 0, 3 + static_cast<int>(round)));  // a different root each time
    ASSERT_EQ(Reply()->error(), "");
    if (round == 1) used = runner_->blocks()->counts().used;
    EXPECT_EQ(runner_->blocks()->counts().used, used) << "round " << round;
  }
}

// The replaced request reserved KV for tokens that were never run.
TEST_P(DraftServiceTest, WhatAReplacedRequestNeverRanIsRunForTheNext) {
  Open(1, 4);
  Send(Request(1, 1, {}, 0, 5));
  ASSERT_EQ(Reply()->error(), "");
  leaders_->Gather(2);
  Send(Request(1, 2, {5, 7}, 0, 9));
  Send(Request(1, 3, {5, 7, 9}, 2, 11));
  const auto warm = Reply();
  Open(2, 4);
  Send(Request(2, 3, {5, 7, 9}, 0, 11));
  const auto cold = Reply();
  ASSERT_TRUE(warm.has_value() && cold.has_value());
  ASSERT_EQ(warm->error() + cold->error(), "");
  EXPECT_EQ(warm->round(), 3u);
  EXPECT_EQ(warm->forest().SerializeAsString(), cold->forest().SerializeAsString());
}

TEST_P(DraftServiceTest, ClosedSessionsGiveTheirBlocksBack) {
  for (uint64_t id = 1; id <= 20; ++id) {
    Open(id, 30);
    Send(Request(id, 1, {}, 0, 5));
    ASSERT_EQ(Reply()->error(), "");
    proto::DraftCommand close;
    close.mutable_close()->set_session_id(id);
    Send(close);
  }
  for (int i = 0; i < 5000 && runner_->blocks()->counts().used > 0; ++i) {
    ASSERT_TRUE(service_->RunOnce(2).ok());
  }
  EXPECT_EQ(runner_->blocks()->counts().used, 0);
  EXPECT_TRUE(runner_->blocks()->CheckIntegrity().ok());
}

// Levels of 20 roots and of 15 nodes do not fit into one pass of 32 rows. So the waiting session
// gets its turn between the two levels of the other.
TEST_P(DraftServiceTest, WhatAPassHadNoRoomForHasTheFirstTurnInTheNext) {
  decoding::DecodingParams params;
  params.kind = sampling::DecodingKind::kBeamSampling;
  params.method = decoding::FindMethod("gumbel_coupling");
  params.beam_width = 20;
  const auto ask = [&](uint64_t id, int depth) {
    proto::DraftCommand command = Request(id, 1, {}, 0, 0);
    proto::DraftRequest* request = command.mutable_draft();
    request->set_width(15);
    request->set_depth(depth);
    request->clear_trie_parent();
    request->clear_trie_token();
    request->clear_state();
    for (int root = 0; root < 20; ++root) {
      request->add_trie_parent(-1);
      request->add_trie_token(root);
      request->mutable_state()->add_root_trie(root);
      request->mutable_state()->add_root_score(-1.0);
      request->mutable_state()->add_root_multiplicity(1);
      request->mutable_state()->add_slot_root(root);
    }
    request->mutable_state()->set_layers_committed(1);
    Send(command);
  };
  Open(1, 4, params);
  Open(2, 4, params);
  AwaitPrompts(leader_.get(), 2);
  leaders_->Gather(2);
  ask(1, 2);
  ask(2, 1);
  for (uint64_t id : {2, 1}) {
    const auto reply = Reply();
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->error(), "");
    EXPECT_EQ(reply->session_id(), id);
  }
}

// Eight forests have levels of four nodes, which fill the passes of 32 rows. Of the prompt's 49
// rows the pass of their roots leaves room for a chunk of 16, and the seven passes after it for
// none.
TEST_P(DraftServiceTest, PromptsAreReadWhileForestsFillThePasses) {
  constexpr uint64_t kForests = 8, kPrompt = 9;
  DraftServiceOptions options;
  options.max_sessions = 9;
  options.max_rows = 32;
  options.prefill_chunk = 16;
  service_ =
      std::make_unique<DraftService>(options, runner_.get(), leaders_.get(), nullptr, &clock_);
  for (uint64_t id = 1; id <= kForests; ++id) Open(id, 4);
  AwaitPrompts(leader_.get(), kForests);
  leaders_->Gather(kForests + 1);
  for (uint64_t id = 1; id <= kForests; ++id) {
    proto::DraftCommand command = Request(id, 1, {}, 0, 5);
    command.mutable_draft()->set_width(4);
    command.mutable_draft()->set_depth(8);
    Send(command);
  }
  Open(kPrompt, 50);
  takes_prefilled_ = true;
  const auto first = Reply();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->session_id(), kPrompt);
  EXPECT_TRUE(first->prefilled());
  for (uint64_t i = 0; i < kForests; ++i) {
    const auto reply = Reply();
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->error(), "");
    EXPECT_EQ(reply->forest().token_size(), 32);
  }
}

// After a move or a fail-over: the stable tokens are read like the prompt, before a draft is asked
// for, and the forest is that of a session from the start.
TEST_P(DraftServiceTest, ASessionThatBeginsInTheMiddleReadsWhatIsStableFirst) {
  const std::vector<TokenId> stable = {5, 7, 9, 11, 13, 15, 17, 19, 21,
                                       5, 7, 9, 11, 13, 15, 17, 19};
  Open(1, 4);
  Send(Request(1, 1, stable, 0, 9));
  const auto whole = Reply();
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->error(), "");
  EXPECT_EQ(whole->sessions(), 1u);
  proto::DraftCommand open;
  decoding::DecodingParams params;
  params.kind = sampling::DecodingKind::kBeamSampling;
  params.method = decoding::FindMethod("gumbel_coupling");
  params.beam_width = 2;
  open.mutable_open()->set_session_id(2);
  for (const int token : {3, 4, 5, 6}) open.mutable_open()->add_prompt(token);
  open.mutable_open()->mutable_stable_tokens()->Assign(stable.begin(), stable.end());
  *open.mutable_open()->mutable_decoding() = proto::DecodingToMessage(params);
  takes_prefilled_ = true;
  Send(open);
  const auto read = Reply();
  ASSERT_TRUE(read.has_value());
  EXPECT_TRUE(read->prefilled()) << read->error();
  EXPECT_EQ(read->sessions(), 2u);
  Send(Request(2, 1, stable, stable.size(), 9));
  const auto forest = Reply();
  ASSERT_TRUE(forest.has_value());
  EXPECT_EQ(forest->error(), "");
  EXPECT_EQ(forest->forest().SerializeAsString(), whole->forest().SerializeAsString());
  open.mutable_open()->set_stable_tokens(3, kVocab);
  Send(open);
  const auto refusal = Reply();
  ASSERT_TRUE(refusal.has_value());
  EXPECT_THAT(refusal->error(), ::testing::HasSubstr("stable_tokens"));
}

TEST_P(DraftServiceTest, ANewRoundReplacesTheOneInFlight) {
  leaders_->Gather(3);
  Open(1, 20);
  Send(Request(1, 1, {}, 0, 5));
  Send(Request(1, 2, {5}, 0, 6));
  const auto reply = Reply();
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->error(), "");
  EXPECT_EQ(reply->round(), 2u);
}

}  // namespace
}  // namespace coppice::draft_node
