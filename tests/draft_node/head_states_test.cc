// States that a draft node with an EAGLE-3 head waits for, refuses and gives up again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/draft_node/head_fixture.h"

namespace coppice::draft_node {
namespace {

using ::testing::HasSubstr;

class HeadStatesTest : public HeadServiceTest {
 protected:
  static LeaderSession Begin(uint64_t id, int prompt) {
    LeaderSession session;
    session.id = id;
    for (int i = 0; i < prompt; ++i) session.sequence.prompt.push_back((5 * i + 3) % kVocab);
    session.sequence.roots = {{1}, {2}, {3}};
    return session;
  }
  static decoding::DecodingParams params() { return ParamsOf(kHeadCases[0]); }
  // A service that drops sessions which have been idle for 10 s of this clock.
  void DropIdleSessions(ManualClock* clock) {
    DraftServiceOptions options;
    options.session_idle_s = 10;
    service_ =
        std::make_unique<DraftService>(options, runner_.get(), leaders_.get(), nullptr, clock);
  }
  // The error that answers a request or other command, changed before it is sent to a new session.
  std::string RefusalOf(uint64_t id, const std::function<void(proto::DraftCommand*)>& change) {
    LeaderSession session = Begin(id, 6);
    OpenSession(session, params());
    SendStates(&session, session.sequence.prompt, 6);
    const decoding::DraftRequest asked = session.sequence.Ask(4, 2, 0);
    proto::DraftCommand command;
    *command.mutable_draft() = proto::DraftRequestToMessage(asked);
    command.mutable_draft()->set_session_id(id);
    command.mutable_draft()->set_round(1);
    *command.mutable_draft()->mutable_states() =
        proto::StatesToMessage(StatesFor(session.sequence, asked, {}, 6, states_));
    change(&command);
    Send(command);
    const auto reply = Reply();
    EXPECT_TRUE(reply.has_value());
    if (!reply) return "";
    EXPECT_EQ(reply->session_id(), id);
    return reply->error();
  }
};

// It waits for commands as an idle node does.
TEST_F(HeadStatesTest, APromptWithoutItsStatesRunsNoSteps) {
  LeaderSession session = Begin(1, 12);
  OpenSession(session, params());
  SendStates(&session, session.sequence.prompt, 5);
  for (int i = 0; i < 500 && runner_->steps() == 0; ++i) ASSERT_TRUE(service_->RunOnce(2).ok());
  EXPECT_EQ(runner_->steps(), 1u);
  const int waits = leaders_->waits();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(service_->RunOnce(0).ok());
  EXPECT_EQ(leaders_->waits(), waits + 20);
  EXPECT_EQ(runner_->steps(), 1u);
  Ask(&session, 4, 2);
  const auto reply = Reply();
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->error(), "");
  EXPECT_EQ(runner_->steps(), 4u);
  EXPECT_EQ(reply->forest().SerializeAsString(), Recomputed(session, params()));
}

// A request waits for the prompt, whose states do not come.
TEST_F(HeadStatesTest, ASessionWhoseStatesNeverComeIsDropped) {
  ManualClock clock;
  DropIdleSessions(&clock);
  LeaderSession session = Begin(1, 6);
  OpenSession(session, params());
  session.states_sent = 6;  // they were not
  Ask(&session, 4, 2);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(service_->RunOnce(1).ok());
  clock.now_s += 11;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(service_->RunOnce(1).ok());
  EXPECT_EQ(runner_->blocks()->counts().used, 0);
  Ask(&session, 4, 2);
  const auto reply = Reply();
  ASSERT_TRUE(reply.has_value());
  EXPECT_THAT(reply->error(), HasSubstr("unknown session"));
}

// A preempted sequence sends the rest of its states when it goes on, and waits until they are read.
TEST_F(HeadStatesTest, StatesOfASessionThatWasDroppedAreAnswered) {
  ManualClock clock;
  DropIdleSessions(&clock);
  LeaderSession session = Begin(1, 6);
  OpenSession(session, params());
  SendStates(&session, session.sequence.prompt, 3);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(service_->RunOnce(1).ok());
  clock.now_s += 11;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(service_->RunOnce(1).ok());
  EXPECT_EQ(runner_->blocks()->counts().used, 0);
  SendStates(&session, session.sequence.prompt, 6);
  const auto reply = Reply();
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->session_id(), 1u);
  EXPECT_THAT(reply->error(), HasSubstr("unknown session"));
}

TEST_F(HeadStatesTest, RequestsWithoutTheStatesTheyNeedAreRefusedByName) {
  uint64_t id = 0;
  EXPECT_EQ(RefusalOf(++id, [](proto::DraftCommand*) {}), "");
  EXPECT_THAT(
      RefusalOf(++id,
                [](proto::DraftCommand* command) { command->mutable_draft()->clear_states(); }),
      HasSubstr("states.trie: empty"));
  // Three roots below the prompt of six tokens: rows 6, which comes after row 5, the prompt's last.
  EXPECT_THAT(
      RefusalOf(++id,
                [&](proto::DraftCommand* command) {
                  proto::RowStates* states = command->mutable_draft()->mutable_states();
                  states->mutable_trie()->RemoveLast();
                  states->mutable_values()->resize(states->values().size() - 2 * states_.columns());
                }),
      HasSubstr("states of row 6"));
  EXPECT_THAT(RefusalOf(++id,
                        [](proto::DraftCommand* command) {
                          command->mutable_draft()->mutable_states()->mutable_values()->pop_back();
                        }),
              HasSubstr("states.values"));
  EXPECT_THAT(RefusalOf(++id,
                        [](proto::DraftCommand* command) {
                          command->mutable_draft()->mutable_states()->set_trie(2, 3);
                        }),
              HasSubstr("states.trie"));
  EXPECT_THAT(RefusalOf(++id,
                        [](proto::DraftCommand* command) {  // bf16 of an infinity
                          std::string* values =
                              command->mutable_draft()->mutable_states()->mutable_values();
                          (*values)[2] = '\x80';
                          (*values)[3] = '\x7f';
                        }),
              HasSubstr("states.values[1]: is not finite"));
  EXPECT_TRUE(runner_->blocks()->CheckIntegrity().ok());
  EXPECT_EQ(RefusalOf(++id, [](proto::DraftCommand*) {}), "");
}

TEST_F(HeadStatesTest, StatesOfRowsThatTheSessionDoesNotHaveAreRefusedByName) {
  uint64_t id = 0;
  const auto with_rows = [&](uint32_t first, uint32_t count) {
    return RefusalOf(++id, [&](proto::DraftCommand* command) {
      decoding::RowStates states;
      states.first = first;
      states.count = count;
      states.values.resize(static_cast<size_t>(count) * states_.columns());
      command->mutable_states()->set_session_id(id);
      *command->mutable_states()->mutable_states() = proto::StatesToMessage(states);
    });
  };
  EXPECT_THAT(with_rows(0, 1), HasSubstr("states.first: rows 0 to 0, expected 1 to 5"));
  EXPECT_THAT(with_rows(5, 2), HasSubstr("states.first: rows 5 to 6, expected 1 to 5"));
  EXPECT_THAT(RefusalOf(++id,
                        [&](proto::DraftCommand* command) {
                          command->mutable_states()->set_session_id(id);
                          command->mutable_states()->mutable_states()->add_trie(0);
                        }),
              HasSubstr("states.trie"));
  EXPECT_THAT(RefusalOf(++id,
                        [&](proto::DraftCommand* command) {
                          command->mutable_states()->set_session_id(id);
                          command->mutable_states()->mutable_states()->set_count(3);
                        }),
              HasSubstr("states.values"));
  EXPECT_EQ(RefusalOf(++id, [](proto::DraftCommand*) {}), "");
}

// Its logits overflow.
TEST_F(HeadStatesTest, AHeadOfHugeWeightsFailsItsSessionsAndTheNodeLivesOn) {
  service_.reset();
  test::TempDir dir;
  runner_ = LoadTinyHead(dir.path(), single_.get(), /*kv_bytes=*/1 << 20, /*weights=*/3e38f);
  Serve(/*max_rows=*/64, /*prefill_chunk=*/16);
  for (uint64_t id = 1; id <= 2; ++id) {
    EXPECT_THAT(RefusalOf(id, [](proto::DraftCommand*) {}), HasSubstr("draft logits after node"));
    EXPECT_EQ(runner_->blocks()->counts().used, 0);
    EXPECT_TRUE(runner_->blocks()->CheckIntegrity().ok());
  }
}

// A forest needs none of the states any more once its first level has run.
TEST_F(HeadStatesTest, AForestLeavesNoStatesAndOnlyRowsOfTheTargetsStates) {
  LeaderSession leader = Begin(1, 6);
  model::BlockManager* blocks = runner_->blocks();
  DraftSession session(params(), leader.sequence.prompt, blocks, StateNeedsOf(runner_->config()));
  ASSERT_TRUE(session.TakeStates(states_.OfRows(leader.sequence.prompt, 1, 5)).ok());
  decoding::DraftRequest request = leader.sequence.Ask(4, 3, 0);
  request.states = StatesFor(leader.sequence, request, {}, 6, states_);
  request.state.root_hash = decoding::RootHashes(request.roots, session.stable_hash());
  model::StepBuilder prefill = runner_->NewStep();
  ASSERT_TRUE(session.AppendPrefill(100, &prefill, runner_->commits()).ok());
  ASSERT_TRUE(runner_->Submit(std::move(prefill)).ok());
  ASSERT_TRUE(runner_->Wait().ok());
  auto builder = ForestBuilder::Start(request, &session, blocks);
  ASSERT_TRUE(builder.ok()) << builder.status();
  EXPECT_EQ(session.held_states(), 1);  // of the prompt's last token
  while (!(*builder)->done()) {
    model::StepBuilder step = runner_->NewStep();
    ASSERT_TRUE((*builder)->AppendRows(&step).ok());
    ASSERT_TRUE(runner_->Submit(std::move(step)).ok());
    const auto rows = runner_->Wait();
    ASSERT_TRUE(rows.ok());
    ASSERT_TRUE((*builder)->Consume(**rows, runner_->threads(), runner_->commits()).ok());
    EXPECT_EQ(session.held_states(), 0);
  }
  EXPECT_GT(blocks->nodes(session.sequence()), 3);
  builder->reset();
  EXPECT_EQ(blocks->nodes(session.sequence()), 3);  // the roots
  EXPECT_EQ(blocks->prefix_length(session.sequence()), 5);
}

}  // namespace
}  // namespace coppice::draft_node
