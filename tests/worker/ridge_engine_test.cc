// The engine's steps on a device whose rows are free up to 200 and cost in full beyond, with drafts
// for many texts at a time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "comm/local_channel.h"
#include "proto/convert.h"
#include "tests/worker/engine_fixture.h"

namespace coppice::worker {
namespace {

using ::testing::IsEmpty;

constexpr int kRidge = 200;
constexpr uint64_t kTexts = 64;

double Step_s(int rows) { return 0.0035 * std::max(1.0, rows / static_cast<double>(kRidge)); }

// A pass takes what its rows cost; nothing else takes time.
class RidgeClock : public Clock, public model::PlanSender {
 public:
  absl::Status Send(const StepPlan& plan) override {
    rows_.push_back(plan.rows());
    now_s_ += Step_s(plan.rows());
    return absl::OkStatus();
  }
  double NowSeconds() const override { return now_s_; }
  const std::vector<int>& rows() const { return rows_; }  // of each step

 private:
  double now_s_ = 1;
  std::vector<int> rows_;
};

// The draft knows all answers and errs at one token in 50.
class RidgeEngineTest : public EngineTest {
 protected:
  RidgeEngineTest() {
    test::TinyLlamaOptions tiny;
    tiny.vocab = kVocab;
    tiny.max_positions = 512;
    runner_ = test::LoadTinyRunner(test::MakeTinyLlama(tiny), other_.path(), single_.get());
    for (uint64_t id = 1; id <= kTexts; ++id) {
      decoding::DecodingParams plain = Text(id);
      plain.plain = true;
      coordinator_.Start(MakeStart(id, plain));
    }
    Run();
    answers_ = coordinator_.finished();
  }
  static decoding::DecodingParams Text(uint64_t seed) {
    decoding::DecodingParams params;
    params.kind = sampling::DecodingKind::kMultinomial;
    params.method = decoding::FindMethod("gumbel_coupling");
    params.seed = seed;
    params.max_tokens = 50;
    return params;
  }
  // Rows of all steps. row_costs: what the engine is told.
  std::vector<int> RowsOfSteps(std::vector<kernels::RowCost> row_costs) {
    coordinator_ = QueuedCoordinator();
    for (uint64_t id = 1; id <= kTexts; ++id) coordinator_.Start(MakeStart(id, Text(id)));
    EngineOptions options = Options(runner_.get());
    options.scheduler.max_rows = options.drafts.max_rows = kDefaultMaxRows;
    options.row_costs = std::move(row_costs);
    comm::LocalChannels channels = comm::MakeLocalChannels();
    draft_ = std::move(channels.server);
    texts_.clear();
    drafts_ = 0;
    RidgeClock clock;
    Engine engine(options, runner_.get(), plans_.get(), &coordinator_, &clock);
    engine.UseOwnDraft(std::move(channels.client));
    runner_->SendPlansTo(&clock);
    coordinator_.EveryTurn([this](int) { Answer(); }, /*most=*/20000);
    EXPECT_TRUE(engine.Run().ok());
    coordinator_.EveryTurn(nullptr);
    EXPECT_THAT(coordinator_.errors(), IsEmpty());
    for (uint64_t id = 1; id <= kTexts; ++id)
      ExpectSameAnswer(coordinator_.finished().at(id), answers_.at(id));
    return clock.rows();
  }
  int drafts() const { return drafts_; }

 private:
  void Answer() {
    proto::DraftCommand command;
    while (const auto peer = draft_->Receive(&command)) {
      proto::DraftReply reply;
      if (command.has_open()) {
        texts_[command.open().session_id()] =
            proto::DecodingFromMessage(command.open().decoding())->seed;
        reply.set_session_id(command.open().session_id());
        reply.set_prefilled(true);
      } else if (command.has_draft()) {
        reply = Draft(command.draft());
      } else {
        continue;
      }
      ASSERT_TRUE(draft_->Send(*peer, reply).ok());
    }
  }
  // As many nodes in each layer as were asked for, the answer's token first.
  proto::DraftReply Draft(const proto::DraftRequest& request) {
    ++drafts_;
    const auto& answer = answers_.at(texts_.at(request.session_id())).hypotheses(0).tokens();
    const int known = request.state().layers_committed();
    decoding::DraftForest forest = decoding::DraftForest::Empty(1);
    forest.layer_begin = {0};
    TreePlace above = RootId{0};
    for (int layer = 0; layer < static_cast<int>(request.depth()); ++layer) {
      const int at = std::min(known + layer, answer.size() - 1);
      const TokenId first = (answer[at] + (at * 7 % 50 == 0 ? 1 : 0)) % kVocab;
      const int32_t node = forest.size();
      for (int i = 0; i < static_cast<int>(request.width()); ++i)
        forest.Add(above, (first + i) % kVocab);
      forest.layer_begin.push_back(forest.size());
      above = NodeId{node};
    }
    proto::DraftReply reply;
    reply.set_session_id(request.session_id());
    reply.set_round(request.round());
    *reply.mutable_forest() = proto::ForestToMessage(forest);
    reply.set_draft_ms(0.05);
    reply.set_model_ms(0.05);
    return reply;
  }

  test::TempDir other_;
  std::unique_ptr<comm::LocalServer> draft_;
  std::map<uint64_t, proto::SequenceUpdate> answers_;
  std::map<uint64_t, uint64_t> texts_;  // by session
  int drafts_ = 0;
};

TEST_F(RidgeEngineTest, StepsWithDraftsStayLeftOfIt) {
  std::vector<kernels::RowCost> costs;
  for (const int rows : {1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 320, 384, 512})
    costs.push_back({rows, Step_s(rows) - 0.0005});
  const std::vector<int> told = RowsOfSteps(costs);
  EXPECT_GT(drafts(), static_cast<int>(5 * kTexts));
  EXPECT_LE(*std::max_element(told.begin(), told.end()), kRidge);
  // Without a word about it, the engine finds out by trying.
  const std::vector<int> untold = RowsOfSteps({});
  EXPECT_GT(*std::max_element(untold.begin(), untold.end()), kRidge);
}

}  // namespace
}  // namespace coppice::worker
