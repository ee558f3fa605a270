// The leader's loop turn by turn. The test controls the clock and the draft node on the engine's
// own thread. Prefill in chunks; sequences that are cancelled in any phase; drafts that nobody
// awaits, that arrive at their deadline or for which there is no room.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/worker/engine_fixture.h"
#include "tests/worker/fake_draft_node.h"

namespace coppice::worker {
namespace {

using ::testing::IsEmpty;

class EngineTurnsTest : public EngineTest {
 protected:
  static decoding::DecodingParams DraftedParams(uint64_t seed) {
    decoding::DecodingParams params = Params();
    params.method = decoding::FindMethod("gumbel_coupling");
    params.plain = false;
    params.seed = seed;
    params.draft_width = 4;
    params.draft_depth = 2;
    return params;
  }
  static std::vector<TokenId> Prompt(int length, int first = 3) {
    std::vector<TokenId> prompt;
    for (int i = 0; i < length; ++i) prompt.push_back((first + 7 * i) % kVocab);
    return prompt;
  }
  static std::unique_ptr<model::ModelRunner> Load(const test::TempDir& dir, int64_t kv_bytes,
                                                  comm::Communicator* single) {
    test::WriteTinyLlama(Tiny(), dir.path());
    model::ModelRunnerOptions options;
    options.dir = dir.path();
    options.kv_bytes = kv_bytes;
    options.threads = 1;
    return model::ModelRunner::Load(options, single).value();
  }
  proto::DraftNodes Nodes() const {
    proto::DraftNodes nodes;
    *nodes.add_nodes() = node_.Announce("draft");
    return nodes;
  }
  void RunTurns(model::ModelRunner* runner, const EngineOptions& options) {
    RunOn(runner, options, manual_);
    coordinator_.EveryTurn(nullptr);
    EXPECT_THAT(coordinator_.errors(), IsEmpty());
  }
  void RunTurns() { RunTurns(runner_.get(), Options(runner_.get())); }
  // The answer of the sequence if nothing disturbs it.
  proto::SequenceUpdate Undisturbed(uint64_t id, decoding::DecodingParams params,
                                    const std::vector<TokenId>& prompt = {5, 6, 7}) {
    params.plain = true;
    coordinator_.Start(MakeStart(id, params, prompt));
    Run();
    return coordinator_.finished().at(id);
  }

  ManualClock manual_;
  FakeDraftNode node_{"direct://127.0.0.1:*"};
};

TEST_F(EngineTurnsTest, TheFirstRoundComesAfterTheLastChunkOfThePrompt) {
  constexpr int kLength = 40;
  std::map<uint64_t, proto::SequenceUpdate> whole;
  for (const int chunk : {64, 1, 7, 13, kLength - 2, kLength - 1}) {
    SCOPED_TRACE(chunk);
    test::TempDir dir;  // a new runner, so no part of the prompts is cached
    const auto runner = test::LoadTinyRunner(Tiny(), dir.path(), single_.get());
    EngineOptions options = Options(runner.get());
    options.scheduler.prefill_chunk = chunk;
    decoding::DecodingParams params = Params();
    coordinator_.Start(MakeStart(1, params, Prompt(kLength)));
    RunTurns(runner.get(), options);
    // The last chunk shares its pass with the first round.
    const int chunks = (kLength - 1 + chunk - 1) / chunk;
    EXPECT_EQ(static_cast<int>(runner->steps()), chunks - 1 + params.max_tokens);
    // The second gets what the first leaves of a chunk.
    for (const uint64_t id : {2, 3}) {
      params.seed = id;
      coordinator_.Start(MakeStart(id, params, Prompt(kLength - 1, 10 + static_cast<int>(id))));
    }
    RunTurns(runner.get(), options);
    if (whole.empty()) whole = coordinator_.finished();
    for (const uint64_t id : {1, 2, 3}) {
      EXPECT_EQ(coordinator_.finished().at(id).stats().cached_tokens(), 0u);
      ExpectSameAnswer(coordinator_.finished().at(id), whole.at(id));
    }
  }
}

// Three samples of a prompt, whose KV the second and the third take from the first, block for
// block. A prompt that differs in its first token shares nothing, one that differs in its 21st a
// single block.
TEST_F(EngineTurnsTest, PromptsThatBeginAlikeAndComeTogetherAreReadOnce) {
  constexpr int kLength = 56;
  std::vector<TokenId> other = Prompt(kLength), late = Prompt(kLength);
  other[0] = 50;
  late[20] = 51;
  const std::vector<TokenId> prompts[] = {Prompt(kLength), Prompt(kLength), other, Prompt(kLength),
                                          late};
  const uint64_t cached[] = {0, 48, 0, 48};
  std::map<uint64_t, proto::SequenceUpdate> alone;
  const auto start = [&](uint64_t id) {
    decoding::DecodingParams params = Params();
    params.seed = id;
    coordinator_.Start(MakeStart(id, params, prompts[id - 1]));
  };
  for (uint64_t id = 1; id <= 5; ++id) {
    test::TempDir dir;  // a new runner: nothing is cached
    const auto runner = test::LoadTinyRunner(Tiny(), dir.path(), single_.get());
    start(id);
    RunTurns(runner.get(), Options(runner.get()));
    alone[id] = coordinator_.finished().at(id);
  }
  for (const int chunk : {256, 24, 5}) {
    SCOPED_TRACE(chunk);
    test::TempDir dir;
    const auto runner = test::LoadTinyRunner(Tiny(), dir.path(), single_.get());
    EngineOptions options = Options(runner.get());
    options.scheduler.prefill_chunk = chunk;
    for (uint64_t id = 1; id <= 5; ++id) start(id);
    RunTurns(runner.get(), options);
    for (uint64_t id = 1; id <= 5; ++id) {
      SCOPED_TRACE(id);
      const uint64_t got = coordinator_.finished().at(id).stats().cached_tokens();
      if (id == 5) {
        EXPECT_LE(got, 20u);  // nobody waits for a single block; what is there may be copied
      } else {
        EXPECT_EQ(got, cached[id - 1]);
      }
      ExpectSameAnswer(coordinator_.finished().at(id), alone.at(id));
    }
  }
}

// Of a prompt that was read before, only the last token is computed again; of one that goes on
// differently, what differs. The KV that is copied gives the same answers.
TEST_F(EngineTurnsTest, APromptThatWasReadBeforeIsReadFromTheTokenThatDiffers) {
  std::vector<TokenId> late = Prompt(48);
  late[36] = 51;
  const std::vector<TokenId> prompts[] = {Prompt(48), Prompt(48), Prompt(45), late};
  const uint64_t cached[] = {0, 47, 44, 36};
  std::vector<proto::SequenceUpdate> alone;
  for (size_t i = 0; i < std::size(prompts); ++i)
    alone.push_back(Undisturbed(1, Params(), prompts[i]));
  test::TempDir dir;
  const auto runner = test::LoadTinyRunner(Tiny(), dir.path(), single_.get());
  for (size_t i = 0; i < std::size(prompts); ++i) {
    SCOPED_TRACE(i);
    coordinator_.Start(MakeStart(i + 1, Params(), prompts[i]));
    RunTurns(runner.get(), Options(runner.get()));
    EXPECT_EQ(coordinator_.finished().at(i + 1).stats().cached_tokens(), cached[i]);
    ExpectSameAnswer(coordinator_.finished().at(i + 1), alone[i]);
  }
  EXPECT_TRUE(runner->blocks()->CheckIntegrity().ok());
}

// The one that reads for the others is cancelled in the middle. Another goes on from where it was.
TEST_F(EngineTurnsTest, APromptIsReadThoughItsReaderLeaves) {
  const proto::SequenceUpdate alone = Undisturbed(1, Params(), Prompt(56));
  test::TempDir dir;
  const auto runner = test::LoadTinyRunner(Tiny(), dir.path(), single_.get());
  EngineOptions options = Options(runner.get());
  options.scheduler.prefill_chunk = 17;
  coordinator_.WaitFor(2);
  coordinator_.EveryTurn([&](int turn) {
    if (turn == 0) {
      for (const uint64_t id : {11, 12, 13})
        coordinator_.Start(MakeStart(id, Params(), Prompt(56)), false);
    }
    if (turn == 1) coordinator_.Cancel(11);
  });
  RunTurns(runner.get(), options);
  EXPECT_EQ(coordinator_.finished().count(11), 0u);
  for (const uint64_t id : {12, 13}) {
    ExpectSameAnswer(coordinator_.finished().at(id), alone);
    EXPECT_EQ(coordinator_.finished().at(id).stats().cached_tokens(), id == 12 ? 16u : 48u);
  }
}

// Prefill takes three turns; the last one includes the first round. Then the sequence waits for
// drafts that never come, or is ready.
TEST_F(EngineTurnsTest, ACancelledSequenceGivesItsBlocksBackWhereverItStands) {
  uint64_t id = 0;
  for (const bool drafted : {false, true}) {
    for (int turn_of_cancel = 1; turn_of_cancel < 7; ++turn_of_cancel) {
      SCOPED_TRACE(testing::Message() << "drafted " << drafted << ", turn " << turn_of_cancel);
      decoding::DecodingParams params = DraftedParams(1);
      params.plain = !drafted;
      EngineOptions options = Options(runner_.get());
      options.scheduler.prefill_chunk = 8;
      options.scheduler.kv_blocks = decoding::KvPagesBound(params, 21, {});  // for one
      const uint64_t cancelled = ++id, next = ++id;
      const std::vector<TokenId> prompt = Prompt(21, static_cast<int>(id));  // not cached
      coordinator_.WaitFor(1);
      coordinator_.EveryTurn([&](int turn) {
        if (turn == 0) {
          if (drafted) coordinator_.Send(Nodes());
          coordinator_.Start(MakeStart(cancelled, params, prompt), /*will_end=*/false);
        }
        if (turn == turn_of_cancel) {
          EXPECT_GT(runner_->blocks()->counts().used, 0);
          coordinator_.Cancel(cancelled);
        }
        if (turn == turn_of_cancel + 1) {
          EXPECT_EQ(runner_->blocks()->counts().used, 0);
          if (drafted) {
            EXPECT_TRUE(node_.Next(proto::DraftCommand::kClose).has_value());
          }
          params.plain = true;
          coordinator_.Start(MakeStart(next, params, prompt), /*will_end=*/false);
        }
      });
      RunTurns(runner_.get(), options);
      EXPECT_EQ(coordinator_.finished().count(cancelled), 0u);
      EXPECT_EQ(coordinator_.finished().count(next), 1u);
    }
  }
}

// The draft node leaves while a sequence waits for it, and the sequence is cancelled in the same
// turn. Another sequence with the same id may have been started by then. It has not requested
// anything.
TEST_F(EngineTurnsTest, AFailedDraftThatNobodyAwaitsIsPassedOver) {
  const proto::SequenceUpdate alone = Undisturbed(1, DraftedParams(1));
  const proto::SequenceUpdate other = Undisturbed(2, DraftedParams(2));
  uint64_t id = 10;
  for (const bool again : {false, true}) {
    SCOPED_TRACE(again);
    const uint64_t left = ++id, second = ++id;
    coordinator_.WaitFor(again ? 2 : 1);
    coordinator_.EveryTurn([&](int turn) {
      if (turn == 0) {
        coordinator_.Send(Nodes());
        coordinator_.Start(MakeStart(left, DraftedParams(1)), false);
      }
      if (turn != 1) return;
      EXPECT_EQ(node_.Requests().size(), 1u);
      coordinator_.Send(proto::DraftNodes());
      coordinator_.Cancel(left);
      if (again) coordinator_.Start(MakeStart(left, DraftedParams(1)), false);
      coordinator_.Start(MakeStart(second, DraftedParams(2)), false);
    });
    RunTurns();
    EXPECT_EQ(coordinator_.finished().count(left), again ? 1u : 0u);
    if (again) ExpectSameAnswer(coordinator_.finished().at(left), alone);
    ASSERT_EQ(coordinator_.finished().count(second), 1u);
    ExpectSameAnswer(coordinator_.finished().at(second), other);
  }
}

// Two drafts have the same deadline. When the engine looks again after it, one has arrived.
TEST_F(EngineTurnsTest, ADraftThatIsThereIsTakenThoughItsDeadlineHasPassed) {
  const proto::SequenceUpdate alone[] = {Undisturbed(1, DraftedParams(1)),
                                         Undisturbed(2, DraftedParams(2))};
  for (const size_t in_time : {0, 1}) {
    SCOPED_TRACE(in_time);
    const uint64_t first = 11 + 10 * in_time;
    coordinator_.WaitFor(2);
    coordinator_.EveryTurn([&](int turn) {
      if (turn == 0) {
        coordinator_.Send(Nodes());
        for (uint64_t i : {0, 1}) {
          coordinator_.Start(MakeStart(first + i, DraftedParams(1 + i)), false);
        }
      }
      if (turn != 1) return;
      const std::vector<proto::DraftRequest> requests = node_.Requests();
      ASSERT_EQ(requests.size(), 2u);
      node_.Send(ReplyTo(requests[in_time]));
      manual_.now_s += DraftClientOptions().max_deadline_s + 1;
    });
    RunTurns();
    for (const size_t i : {0, 1}) {
      ASSERT_EQ(coordinator_.finished().count(first + i), 1u);
      const proto::SequenceUpdate& update = coordinator_.finished().at(first + i);
      EXPECT_EQ(update.stats().drafted_nodes(), i == in_time ? 1u : 0u);
      ExpectSameAnswer(update, alone[i]);
    }
  }
}

// A pass of any size takes 10 ms, a turn of the loop 1 ms.
class PassClock : public Clock {
 public:
  explicit PassClock(const model::ModelRunner* runner) : runner_(runner) {}
  double NowSeconds() const override { return turns * 1e-3 + runner_->steps() * 10e-3; }
  int turns = 0;

 private:
  const model::ModelRunner* runner_;
};

// The draft node first answers all requests at once, then one in a turn. Each of two sequences
// could begin a pass when its forest comes, and they would take turns from then on; as they do
// where passes and drafts take no time.
TEST_F(EngineTurnsTest, SequencesWaitForEachOthersDraftsToShareAPass) {
  decoding::DecodingParams params[] = {DraftedParams(1), DraftedParams(2)};
  for (decoding::DecodingParams& p : params) {
    p.max_tokens = 30;
    p.draft_width = p.draft_depth = 1;  // as the fake node answers
  }
  const proto::SequenceUpdate alone[] = {Undisturbed(1, params[0]), Undisturbed(2, params[1])};
  uint64_t steps[2];
  for (const bool passes_take_time : {false, true}) {
    const uint64_t first = passes_take_time ? 21 : 11, before = runner_->steps();
    PassClock clock(runner_.get());
    std::deque<proto::DraftRequest> asked;
    int answered = 0;
    coordinator_.WaitFor(2);
    coordinator_.EveryTurn([&](int turn) {
      clock.turns = turn;
      if (turn == 0) {
        coordinator_.Send(Nodes());
        for (uint64_t i : {0, 1}) coordinator_.Start(MakeStart(first + i, params[i]), false);
      }
      for (const proto::DraftRequest& request : node_.Requests()) asked.push_back(request);
      for (; !asked.empty(); asked.pop_front()) {
        node_.Send(ReplyTo(asked.front()));
        if (++answered > 8) return asked.pop_front();
      }
    });
    const Clock& of_engine = passes_take_time ? static_cast<const Clock&>(clock) : manual_;
    RunOn(runner_.get(), Options(runner_.get()), of_engine);
    coordinator_.EveryTurn(nullptr);
    EXPECT_THAT(coordinator_.errors(), IsEmpty());
    for (const size_t i : {0, 1}) {
      ASSERT_EQ(coordinator_.finished().count(first + i), 1u);
      ExpectSameAnswer(coordinator_.finished().at(first + i), alone[i]);
    }
    steps[passes_take_time] = runner_->steps() - before;
  }
  EXPECT_GT(steps[false], 50u);
  EXPECT_LT(steps[true], 36u);
}

// Every second forest is too large for the pool, which has fewer blocks than admission knows.
TEST_F(EngineTurnsTest, AForestWithoutRoomInThePoolMakesAPlainRound) {
  constexpr int kSmallPool = 9 * 4096;  // bytes of nine blocks, one of which is the sink
  decoding::DecodingParams params = DraftedParams(1);
  params.max_tokens = 12;  // the prefix stays in its first block
  params.draft_width = 100;
  const proto::SequenceUpdate alone = Undisturbed(1, params);
  test::TempDir dir;
  const auto runner = Load(dir, kSmallPool, single_.get());
  EngineOptions options = Options(runner.get());
  options.scheduler.kv_blocks = 1000;
  options.scheduler.max_rows = 300;
  int asked = 0, large = 0, fitting = 0;
  coordinator_.WaitFor(1);
  coordinator_.EveryTurn([&](int turn) {
    ASSERT_TRUE(runner->blocks()->CheckIntegrity().ok()) << runner->blocks()->CheckIntegrity();
    if (turn == 0) {
      coordinator_.Send(Nodes());
      coordinator_.Start(MakeStart(2, params), false);
    }
    for (const proto::DraftRequest& request : node_.Requests()) {
      proto::DraftReply reply = ReplyTo(request);
      if (++asked % 2 == 0) {
        ++fitting;
        node_.Send(reply);
        continue;
      }
      ++large;
      decoding::DraftForest forest = decoding::DraftForest::Empty(request.state().root_trie_size());
      for (TokenId token = 0; token < 80; ++token) forest.Add(RootId{0}, token);
      for (TokenId token = 0; token < 80; ++token) forest.Add(NodeId{token}, token);
      forest.layer_begin = {0, 80, 160};
      *reply.mutable_forest() = proto::ForestToMessage(forest);
      node_.Send(reply);
    }
  });
  RunTurns(runner.get(), options);
  EXPECT_GT(large, 3);
  ASSERT_EQ(coordinator_.finished().count(2), 1u);
  ExpectSameAnswer(coordinator_.finished().at(2), alone);
  EXPECT_EQ(coordinator_.finished().at(2).stats().drafted_nodes(), static_cast<uint64_t>(fitting));
}

}  // namespace
}  // namespace coppice::worker
