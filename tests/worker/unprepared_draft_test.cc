// Draft nodes that cost and never help: most sequences then leave them alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "tests/worker/engine_fixture.h"
#include "tests/worker/fake_draft_node.h"
#include "tests/worker/ticking_clock.h"

namespace coppice::worker {
namespace {

using ::testing::IsEmpty;

constexpr int kTurnsToRead = 10;

class UnpreparedDraftTest : public EngineTest {
 protected:
  UnpreparedDraftTest() {
    test::TinyLlamaOptions tiny;
    tiny.vocab = kVocab;
    tiny.max_positions = 512;
    runner_ = test::LoadTinyRunner(test::MakeTinyLlama(tiny), other_.path(), single_.get());
    proto::DraftNodes nodes;
    *nodes.add_nodes() = node_.Announce("draft");
    coordinator_.Send(nodes);
  }
  // A single path whose shape is left to the server.
  static decoding::DecodingParams FreeParams(uint64_t seed, int tokens) {
    decoding::DecodingParams params;
    params.kind = sampling::DecodingKind::kMultinomial;
    params.method = decoding::FindMethod("gumbel_coupling");
    params.seed = seed;
    params.max_tokens = tokens;
    return params;
  }
  struct Session {
    int opened = 0, first_asked = -1;  // turns
    uint32_t first_round = 0;          // for which a draft was asked
    bool told = false;                 // that the prompt is read
  };
  // What the node is told. Each draft takes it 5 ms and has one node, which is a bad guess. A
  // prompt takes it kTurnsToRead turns.
  void Answer(int turn) {
    while (auto command = node_.TryNext()) {
      if (command->has_open()) sessions_[command->open().session_id()].opened = turn;
      if (!command->has_draft()) continue;
      Session& session = sessions_[command->draft().session_id()];
      if (session.first_asked < 0) {
        session.first_asked = turn;
        session.first_round = command->draft().round();
      }
      ++asked_;
      clock_of_turns_.now_s += 0.005;
      proto::DraftReply reply = ReplyTo(command->draft());
      reply.set_draft_ms(5);
      reply.set_model_ms(4);
      node_.Send(reply);
    }
    for (auto& [id, session] : sessions_) {
      if (session.told || turn < session.opened + kTurnsToRead) continue;
      session.told = true;
      proto::DraftReply reply;
      reply.set_session_id(id);
      reply.set_prefilled(true);
      node_.Send(reply);
    }
  }
  void RunSequences() {
    RunOn(runner_.get(), Options(runner_.get()), clock_of_turns_);
    coordinator_.EveryTurn(nullptr);
    ASSERT_THAT(coordinator_.errors(), IsEmpty());
  }
  // The answer is the one without drafts.
  void ExpectThePlainAnswer(uint64_t id, decoding::DecodingParams params) {
    const proto::SequenceUpdate with = coordinator_.finished().at(id);
    params.plain = true;
    coordinator_.Start(MakeStart(id, params));
    Run();
    ExpectSameAnswer(with, coordinator_.finished().at(id));
  }

  test::TempDir other_;
  TickingClock clock_of_turns_;
  FakeDraftNode node_{"direct://127.0.0.1:*"};
  std::map<uint64_t, Session> sessions_;
  int asked_ = 0;
};

TEST_F(UnpreparedDraftTest, DraftsThatNeverPayAreNoLongerPrepared) {
  constexpr int kLong = 10, kShort = 24;
  const auto tokens = [](uint64_t id) { return id <= kLong ? 48 : 20; };
  coordinator_.WaitFor(kLong + kShort);
  uint64_t started = 0;
  size_t opened_by_long = 0;
  int asked_by_long = 0;
  coordinator_.EveryTurn([&](int turn) {
    Answer(turn);
    if (coordinator_.finished().size() < started || started == kLong + kShort) return;
    if (started == kLong) opened_by_long = sessions_.size(), asked_by_long = asked_;
    ++started;
    coordinator_.Start(MakeStart(started, FreeParams(started, tokens(started))), false);
  });
  RunSequences();
  EXPECT_GE(asked_by_long, 1);
  EXPECT_GE(opened_by_long, 1u);
  // The first drafts showed that none pays. Then only trials have some, and these are rare.
  EXPECT_LE(sessions_.size(), 4u);
  for (uint64_t id = 1; id <= started; ++id) ExpectThePlainAnswer(id, FreeParams(id, tokens(id)));
}

// A request that says how to draft has its draft from the first round, whatever pays.
TEST_F(UnpreparedDraftTest, ARequestWithNumbersOfItsOwnIsPrepared) {
  constexpr int kFree = 12;
  const auto params = [](uint64_t id) {
    decoding::DecodingParams params = FreeParams(id, 48);
    if (id > kFree) params.draft_width = params.draft_depth = 1;
    return params;
  };
  coordinator_.WaitFor(kFree + 4);
  uint64_t started = 0;
  std::map<uint64_t, Session> before;
  coordinator_.EveryTurn([&](int turn) {
    Answer(turn);
    if (coordinator_.finished().size() < started || started == kFree + 4) return;
    if (++started == kFree + 1) before = sessions_;
    coordinator_.Start(MakeStart(started, params(started)), false);
  });
  RunSequences();
  EXPECT_EQ(sessions_.size(), before.size() + 4);
  for (const auto& [id, session] : sessions_) {
    if (before.count(id) > 0) continue;
    EXPECT_EQ(session.first_round, 1u);
  }
}

// A long text that began without a draft node gets one between two rounds, and does not wait while
// that reads the prompt.
TEST_F(UnpreparedDraftTest, ALongTextIsPreparedLater) {
  constexpr int kTexts = 4, kTokens = 450;
  constexpr uint32_t kLater = 3;  // rounds; until then costs without drafts are not known
  coordinator_.WaitFor(kTexts);
  uint64_t started = 0;
  coordinator_.EveryTurn([&](int turn) {
    Answer(turn);
    if (coordinator_.finished().size() < started || started == kTexts) return;
    ++started;
    coordinator_.Start(MakeStart(started, FreeParams(started, kTokens)), false);
  });
  RunSequences();
  int later = 0;
  for (const auto& [id, session] : sessions_) {
    if (session.first_asked < 0 || session.first_round < kLater) continue;
    ++later;
    EXPECT_GE(session.first_asked, session.opened + kTurnsToRead);
    EXPECT_GE(session.first_round, kLater + kTurnsToRead / 2) << "it did not go on";
  }
  EXPECT_GE(later, 1);
  for (uint64_t id = 1; id <= started; ++id) ExpectThePlainAnswer(id, FreeParams(id, kTokens));
}

}  // namespace
}  // namespace coppice::worker
