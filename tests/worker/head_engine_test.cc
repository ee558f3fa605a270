// The leader's loop with an EAGLE-3 head, in the worker's process and on draft nodes: the states of
// the target that the head takes change no answer, whatever happens to sequences and nodes.
#include <gtest/gtest.h>

#include <memory>

#include "tests/testing/thread_communicator.h"
#include "tests/worker/draft_node_thread.h"
#include "tests/worker/head_fixture.h"
#include "worker/rank_loop.h"

namespace coppice::worker {
namespace {

using HeadEngineTest = HeadTest;

constexpr char kEndpoint[] = "direct://127.0.0.1:*";

// How a draft node loads a head for a target.
DraftNodeThread::Load LoadFrom(const model::ModelRunnerOptions& options) {
  return [options](comm::Communicator* single) {
    return model::ModelRunner::Load(options, single).value();
  };
}

TEST_F(HeadEngineTest, AnswersAreThoseWithoutIt) {
  const auto plain = Requests(120, /*drafts=*/false), drafted = Requests(120, /*drafts=*/true);
  const auto runner = LoadTarget(2000, /*keeps=*/true);
  const auto without = DecodeWith(LoadTarget(2000, /*keeps=*/false).get(), plain, nullptr);
  EXPECT_EQ(drafted_, 0u);
  EXPECT_EQ(counters_.state_bytes(), 0u);
  const auto head = LoadHead();
  ExpectSame(DecodeWith(runner.get(), drafted, head->Serve(ManySessions())), without);
  EXPECT_GT(drafted_, 2000u);
  EXPECT_GT(accepted_, 20u);
  ExpectServed();
}

// Sequences lose their KV, and their states with it, and read them again.
TEST_F(HeadEngineTest, AlsoInAPoolThatIsFarTooSmall) {
  const auto plain = Requests(120, /*drafts=*/false), drafted = Requests(120, /*drafts=*/true);
  const auto large = LoadTarget(2000, /*keeps=*/true);
  const auto without = DecodeWith(large.get(), plain, nullptr);
  EXPECT_EQ(preemptions_, 0u);
  const auto head = LoadHead();
  const auto small = LoadTarget(LargestBound(large.get(), drafted), /*keeps=*/true);
  ExpectSame(DecodeWith(small.get(), drafted, head->Serve(ManySessions())), without);
  EXPECT_GT(preemptions_, 10u);
  EXPECT_GT(drafted_, 800u);
  ExpectServed();
}

// Nodes come and go, and sessions with them.
TEST_F(HeadEngineTest, AlsoOnDraftNodesThatComeAndGo) {
  const auto plain = Requests(120, /*drafts=*/false), drafted = Requests(120, /*drafts=*/true);
  const auto runner = LoadTarget(2000, /*keeps=*/true);
  const auto without = DecodeWith(runner.get(), plain, nullptr);
  const DraftNodeThread a(LoadFrom(HeadOptions(head_.path(), model_dir_.path())), kEndpoint,
                          ManySessions(), States());
  const DraftNodeThread b(LoadFrom(HeadOptions(head_.path(), model_dir_.path())), kEndpoint,
                          ManySessions(), States());
  act_ = [&](int turn) {
    if (turn % 15 != 0) return;
    proto::DraftNodes nodes;
    if (turn % 4 != 1) *nodes.add_nodes() = a.Entry("a");
    if (turn % 4 != 3) *nodes.add_nodes() = b.Entry("b");
    coordinator_.Send(nodes);
  };
  ExpectSame(DecodeWith(runner.get(), drafted, nullptr), without);
  EXPECT_GT(drafted_, 800u);
  EXPECT_GT(counters_.draft_moves().at("gone"), 10u);
  ExpectServed();
}

TEST_F(HeadEngineTest, AlsoWithTwoRanks) {
  const auto plain = Requests(60, /*drafts=*/false), drafted = Requests(60, /*drafts=*/true);
  test::RunRanks(2, [&](comm::Communicator* ranks) {
    model::ModelRunnerOptions options;
    options.dir = model_dir_.path();
    options.states_for = head_.path();
    options.threads = 1;
    options.kv_bytes = 4 << 20;
    const auto runner = model::ModelRunner::Load(options, ranks).value();
    EXPECT_EQ(runner->state_columns() > 0, ranks->rank() == 0);
    if (ranks->rank() > 0) {
      EXPECT_TRUE(RunRankLoop(ranks, runner.get(), [] {}, {}).ok());
      return;
    }
    plans_ = PlanLeader::Start(ranks, kEndpoint, /*deadline_s=*/60, {}).value();
    const auto without = DecodeWith(runner.get(), plain, nullptr);
    const auto head = LoadHead();
    ExpectSame(DecodeWith(runner.get(), drafted, head->Serve(ManySessions())), without);
    plans_.reset();
  });
  EXPECT_GT(drafted_, 800u);
  ExpectServed();
}

// Another head's states are not what a node expects, and a target may keep none.
TEST_F(HeadEngineTest, ANodeOfAnotherHeadIsNotUsed) {
  const auto runner = LoadTarget(2000, /*keeps=*/true);
  const test::TempDir other;
  test::WriteTinyLlama(test::MakeTinyEagle3(Target(), {.seed = 2}), other.path());
  const uint64_t states = model::StatesFingerprint(other.path(), model_dir_.path()).value();
  ASSERT_NE(states, States());
  const DraftNodeThread node(LoadFrom(HeadOptions(other.path(), model_dir_.path())), kEndpoint,
                             ManySessions(), states);
  proto::DraftNodes nodes;
  *nodes.add_nodes() = node.Entry("a");
  DecodeWith(runner.get(), Requests(12, /*drafts=*/true), nullptr, nodes);
  EXPECT_EQ(drafted_, 0u);
  EXPECT_EQ(counters_.state_bytes(), 0u);
}

}  // namespace
}  // namespace coppice::worker
