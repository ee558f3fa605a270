// The leader's loop and a draft node run on one thread, turn by turn. The node leaves in the
// middle. The sequence goes on from the end of its last draft.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "draft_node/draft_service.h"
#include "tests/worker/engine_fixture.h"

namespace coppice::worker {
namespace {

using ::testing::IsEmpty;

constexpr int kTurnsOfADraft = 5;  // more than a draft takes

class VanishingDraftNodeTest : public EngineTest {
 protected:
  VanishingDraftNodeTest() {
    test::TinyLlamaOptions draft = Tiny().options;
    draft.seed = 2;
    draft_runner_ = test::LoadTinyRunner(draft, draft_dir_.path(), single_.get());
    leaders_ = *comm::ServerChannel::Bind("direct://127.0.0.1:*");
    service_ = std::make_unique<draft_node::DraftService>(
        draft_node::DraftServiceOptions(), draft_runner_.get(), leaders_.get(), nullptr, &manual_);
  }
  proto::DraftNodes Nodes() const {
    proto::DraftNodes nodes;
    proto::DraftNode* node = nodes.add_nodes();
    node->set_node_id("draft");
    node->set_endpoint(leaders_->endpoint());
    return nodes;
  }

  ManualClock manual_;
  test::TempDir draft_dir_;
  std::unique_ptr<model::ModelRunner> draft_runner_;
  std::unique_ptr<comm::ServerChannel> leaders_;
  std::unique_ptr<draft_node::DraftService> service_;
};

// If drafts do not fill a layer, DSBD decides no further layer. If all four possible tokens were
// drafted, the row of every new root is then already known. Without a draft, no other row would be
// left for a pass.
TEST_F(VanishingDraftNodeTest, ARoundWhoseRootsAreAllKnownNeedsNoDraft) {
  decoding::DecodingParams params = Params();
  params.method = decoding::FindMethod("dsbd");
  params.plain = false;
  params.beam_width = params.num_hypotheses = 4;
  params.sampling.logit_bias = {{10, 1e4}, {20, 1e4}};  // no other token is possible
  params.sampling.temperature = 8;
  params.draft_width = 5;
  params.draft_depth = 1;
  int all_known = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    params.seed = seed;
    coordinator_.Start(MakeStart(seed, params));
    coordinator_.EveryTurn([&](int turn) {
      if (turn == 0) coordinator_.Send(Nodes());
      if (turn == 1) {
        for (int i = 0; i < kTurnsOfADraft; ++i) ASSERT_TRUE(service_->RunOnce(0).ok());
      }
      if (turn == 2) coordinator_.Send(proto::DraftNodes());
    });
    RunOn(runner_.get(), Options(runner_.get()), manual_);
    coordinator_.EveryTurn(nullptr);
    ASSERT_THAT(coordinator_.errors(), IsEmpty());
    ASSERT_EQ(coordinator_.finished().count(seed), 1u);
    const proto::SequenceStats& stats = coordinator_.finished().at(seed).stats();
    EXPECT_EQ(stats.rounds() - stats.plain_rounds(), 1u);
    all_known += stats.layers() == stats.rounds() && stats.drafted_nodes() == 4 ? 1 : 0;
  }
  EXPECT_GT(all_known, 5);
}

}  // namespace
}  // namespace coppice::worker
