// The leader's loop with the draft of its own process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "decoding/method.h"
#include "draft_node/draft_thread.h"
#include "tests/testing/failing_sender.h"
#include "tests/worker/draft_node_thread.h"
#include "tests/worker/engine_fixture.h"

namespace coppice::worker {
namespace {

using ::testing::IsEmpty;

class OwnDraftTest : public EngineTest {
 protected:
  static constexpr int kSequences = 6;

  static decoding::DecodingParams DraftedParams(uint64_t seed) {
    decoding::DecodingParams params = Params();
    params.method = decoding::FindMethod("gumbel_coupling");
    params.plain = false;
    params.seed = seed;
    params.max_tokens = 30;
    params.draft_width = 6;
    params.draft_depth = 2;
    return params;
  }
  std::unique_ptr<draft_node::DraftThread> LoadDraft(model::PlanSender* sender = nullptr) {
    auto draft = draft_node::DraftThread::Load([&](comm::Communicator* single) {
      auto runner = test::LoadTinyRunner(Tiny(), draft_dir_.path(), single);
      runner->SendPlansTo(sender);
      return runner;
    });
    EXPECT_TRUE(draft.ok()) << draft.status();
    return *std::move(draft);
  }
  // Runs all sequences; the answers by their ids.
  std::map<uint64_t, proto::SequenceUpdate> Answers(std::unique_ptr<comm::ClientChannel> own,
                                                    const proto::DraftNodes& nodes = {}) {
    for (uint64_t id = 1; id <= kSequences; ++id)
      coordinator_.Start(MakeStart(id, DraftedParams(id)));
    coordinator_.Send(nodes);
    EngineOptions options = Options(runner_.get());
    options.drafts.min_deadline_s = 2;
    options.drafts.max_deadline_s = 4;
    options.suffixes.on = false;  // without a draft node there are no drafts
    RunOn(runner_.get(), options, clock_, std::move(own));
    EXPECT_THAT(coordinator_.errors(), IsEmpty());
    return coordinator_.finished();
  }
  static uint64_t Drafted(const std::map<uint64_t, proto::SequenceUpdate>& answers) {
    uint64_t nodes = 0;
    for (const auto& [id, answer] : answers) nodes += answer.stats().drafted_nodes();
    return nodes;
  }
  static void ExpectSame(const std::map<uint64_t, proto::SequenceUpdate>& some,
                         const std::map<uint64_t, proto::SequenceUpdate>& others) {
    ASSERT_EQ(some.size(), others.size());
    for (const auto& [id, answer] : some) ExpectSameAnswer(answer, others.at(id));
  }

  test::TempDir draft_dir_;
};

TEST_F(OwnDraftTest, AnswersAsByADraftNodeAndWithoutDrafts) {
  const auto plain = Answers(nullptr);
  EXPECT_EQ(Drafted(plain), 0u);
  const auto draft = LoadDraft();
  const auto own = Answers(draft->Serve({}));
  EXPECT_GT(Drafted(own), 0u);
  ExpectSame(plain, own);
  const DraftNodeThread node(Tiny(), "direct://127.0.0.1:*");
  const auto by_node = Answers(nullptr, node.Nodes());
  EXPECT_GT(Drafted(by_node), 0u);
  ExpectSame(by_node, own);
}

TEST_F(OwnDraftTest, AFailureInTheMiddleChangesNoAnswer) {
  const auto plain = Answers(nullptr);
  test::FailingSender sender(12);
  const auto draft = LoadDraft(&sender);
  const auto answers = Answers(draft->Serve({}));
  EXPECT_TRUE(sender.failed());
  EXPECT_GT(Drafted(answers), 0u);
  uint64_t rounds = 0;
  for (const auto& [id, answer] : answers) rounds += answer.stats().plain_rounds();
  EXPECT_GT(rounds, 0u);
  ExpectSame(plain, answers);
}

TEST_F(OwnDraftTest, AFailureLeavesTheDraftNodesToDraft) {
  const auto plain = Answers(nullptr);
  test::FailingSender sender(0);
  const auto draft = LoadDraft(&sender);
  const DraftNodeThread node(Tiny(), "direct://127.0.0.1:*");
  const auto answers = Answers(draft->Serve({}), node.Nodes());
  EXPECT_TRUE(sender.failed());
  EXPECT_GT(Drafted(answers), 0u);
  ExpectSame(plain, answers);
}

}  // namespace
}  // namespace coppice::worker
