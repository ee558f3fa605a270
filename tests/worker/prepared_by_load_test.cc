// Drafts that pay for a text that runs alone, and not for several: who gets a draft node, and when.
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

constexpr uint64_t kAlone = 3, kCrowd = 6;  // texts; the crowd comes twice
constexpr uint64_t kLast = kAlone + 2 * kCrowd;

// The node knows all answers. A draft takes no time, but 20 ms while several texts run.
class PreparedByLoadTest : public EngineTest {
 protected:
  PreparedByLoadTest() {
    test::TinyLlamaOptions tiny;
    tiny.vocab = kVocab;
    tiny.max_positions = 512;
    runner_ = test::LoadTinyRunner(test::MakeTinyLlama(tiny), other_.path(), single_.get());
    for (uint64_t id = 1; id <= kLast; ++id) {
      decoding::DecodingParams plain = Text(id);
      plain.plain = true;
      coordinator_.Start(MakeStart(id, plain));
    }
    Run();
    answers_ = coordinator_.finished();
    SendNodes(true);
  }
  // Of the second crowd, only the last text is long. `seed` tells the node which text it is.
  static decoding::DecodingParams Text(uint64_t id) {
    decoding::DecodingParams params;
    params.kind = sampling::DecodingKind::kMultinomial;
    params.method = decoding::FindMethod("gumbel_coupling");
    params.seed = id;
    params.max_tokens = id < kLast && id > kAlone + kCrowd ? 30 : 300;
    return params;
  }
  void SendNodes(bool any) {
    proto::DraftNodes nodes;
    if (any) *nodes.add_nodes() = node_.Announce("draft");
    coordinator_.Send(nodes);
  }
  void Start(uint64_t first, uint64_t last) {
    for (uint64_t id = first; id <= last; ++id)
      coordinator_.Start(MakeStart(kLast + id, Text(id)), false);
    started_ = last;
  }
  size_t ended() const { return coordinator_.finished().size() - kLast; }
  // Each of the first texts alone, then the crowds, one after the other.
  void GoOn(bool node_leaves) {
    Answer();
    if (ended() < started_ || started_ == kLast) return;
    if (started_ < kAlone) return Start(started_ + 1, started_ + 1);
    if (started_ == kAlone) return Start(kAlone + 1, kAlone + kCrowd);
    opened_before_ = sessions_.size();
    if (node_leaves) SendNodes(false);
    Start(kLast - kCrowd + 1, kLast);
  }
  void Answer() {
    while (auto command = node_.TryNext()) {
      if (command->has_open()) {
        const proto::OpenDraft& open = command->open();
        sessions_[open.session_id()] = {proto::DecodingFromMessage(open.decoding())->seed};
        proto::DraftReply reply;
        reply.set_session_id(open.session_id());
        reply.set_prefilled(true);
        node_.Send(reply);
      }
      if (command->has_draft()) Draft(command->draft());
    }
  }
  void Draft(const proto::DraftRequest& request) {
    Session& session = sessions_.at(request.session_id());
    ++session.drafts;
    if (session.first_round == 0) session.first_round = request.round();
    const auto& answer = answers_.at(session.text).hypotheses(0).tokens();
    const int known = request.state().layers_committed();
    const int layers = std::min<int>(request.depth(), static_cast<int>(answer.size()) - known);
    decoding::DraftForest forest = decoding::DraftForest::Empty(1);
    if (layers > 0) forest.layer_begin = {0};
    for (int i = 0; i < layers; ++i) {
      forest.Add(i == 0 ? TreePlace(RootId{0}) : NodeId{i - 1}, answer[known + i]);
      forest.layer_begin.push_back(i + 1);
    }
    proto::DraftReply reply;
    reply.set_session_id(request.session_id());
    reply.set_round(request.round());
    *reply.mutable_forest() = proto::ForestToMessage(forest);
    const bool alone = started_ - ended() == 1;
    if (!alone) time_.now_s += 0.020;
    reply.set_draft_ms(alone ? 0.1 : 20);
    reply.set_model_ms(alone ? 0.1 : 19);
    node_.Send(reply);
  }
  void RunAll(bool node_leaves) {
    coordinator_.WaitFor(kLast);
    coordinator_.EveryTurn([&](int) { GoOn(node_leaves); });
    RunOn(runner_.get(), Options(runner_.get()), time_);
    coordinator_.EveryTurn(nullptr);
    ASSERT_THAT(coordinator_.errors(), IsEmpty());
    for (uint64_t id = 1; id <= kLast; ++id)
      ExpectSameAnswer(coordinator_.finished().at(kLast + id), answers_.at(id));
  }

  struct Session {
    uint64_t text = 0;
    uint32_t first_round = 0;  // for which a draft was asked
    int drafts = 0;
  };
  test::TempDir other_;
  TickingClock time_;
  FakeDraftNode node_{"direct://127.0.0.1:*"};
  std::map<uint64_t, proto::SequenceUpdate> answers_;
  std::map<uint64_t, Session> sessions_;
  uint64_t started_ = 0;
  size_t opened_before_ = 0;
};

// Nobody reads the prompts of the second crowd, but for one that explores. When the long text is
// left alone, it gets a node and drafts.
TEST_F(PreparedByLoadTest, TheOneThatIsLeftAloneIsPreparedThen) {
  RunAll(/*node_leaves=*/false);
  EXPECT_LE(sessions_.size() - opened_before_, 2u);
  const auto last = std::find_if(sessions_.begin(), sessions_.end(),
                                 [](const auto& session) { return session.second.text == kLast; });
  ASSERT_NE(last, sessions_.end());
  EXPECT_GE(last->second.first_round, 20u) << "the crowd was still there";
  EXPECT_GE(last->second.drafts, 30);
}

TEST_F(PreparedByLoadTest, RoundsThatWantADraftAndFindNoNodeAreCounted) {
  RunAll(/*node_leaves=*/true);
  EXPECT_EQ(sessions_.size(), opened_before_);
  EXPECT_GE(coordinator_.status().counters().rounds_without_draft().at("no_node"), 100u);
}

}  // namespace
}  // namespace coppice::worker
