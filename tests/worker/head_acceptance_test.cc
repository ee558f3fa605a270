// The leader's loop with a trained EAGLE-3 head, on a draft node and in the leader's process. The
// answers must be those without drafts, no session may fail, and what the head drafts must be
// accepted as often as its training lets expect: with other states than the right ones it is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "decoding/method.h"
#include "draft_node/draft_thread.h"
#include "model/target_states.h"
#include "tests/worker/draft_node_thread.h"
#include "tests/worker/engine_fixture.h"
#include "worker/row_states.h"

namespace coppice::worker {
namespace {

using sampling::DecodingKind;
using ::testing::IsEmpty;

constexpr char kTarget[] = "tests/models/stories260k";
constexpr char kHead[] = "tests/models/stories260k-eagle3";

struct Decoding {
  const char* name;
  DecodingKind kind;
  const char* method;
  int beams;
  // At least. In an undisturbed run 2.10, 2.60 and 2.60; with the state of the token before the
  // right one 1.49, 1.54 and 1.84.
  double layers_per_pass;
};
constexpr Decoding kDecodings[] = {
    {"Sampling", DecodingKind::kMultinomial, "gumbel_coupling", 1, 1.8},
    {"Greedy", DecodingKind::kMultinomial, "speculative_beam_search", 1, 2.2},
    {"BeamSampling", DecodingKind::kBeamSampling, "gumbel_coupling", 3, 2.2}};

using Answers = std::map<uint64_t, proto::SequenceUpdate>;

uint64_t Sum(const Answers& answers, uint64_t (proto::SequenceStats::*field)() const) {
  uint64_t sum = 0;
  for (const auto& [id, answer] : answers) sum += (answer.stats().*field)();
  return sum;
}

class HeadAcceptanceTest : public EngineTest, public ::testing::WithParamInterface<Decoding> {
 protected:
  static constexpr int kSequences = 5;

  static std::unique_ptr<model::ModelRunner> LoadTarget(comm::Communicator* single, bool states,
                                                        int64_t kv_bytes = 4 << 20) {
    model::ModelRunnerOptions options;
    options.dir = kTarget;
    if (states) options.states_for = kHead;
    options.kv_bytes = kv_bytes;
    options.threads = 1;
    auto runner = model::ModelRunner::Load(options, single);
    EXPECT_TRUE(runner.ok()) << runner.status();
    return *std::move(runner);
  }
  static absl::StatusOr<std::unique_ptr<model::ModelRunner>> LoadHead(comm::Communicator* single) {
    model::ModelRunnerOptions options;
    options.dir = kHead;
    options.target = kTarget;
    options.kv_bytes = 4 << 20;
    options.threads = 1;
    return model::ModelRunner::Load(options, single);
  }
  static decoding::DecodingParams ParamsOf(const Decoding& decoding, uint64_t id, bool plain) {
    decoding::DecodingParams params;
    params.kind = decoding.kind;
    params.method = decoding::FindMethod(decoding.method);
    params.plain = plain;
    params.seed = id;
    params.beam_width = params.num_hypotheses = decoding.beams;
    params.max_tokens = 40;
    params.draft_width = 2 * decoding.beams;
    params.draft_depth = 3;
    if (std::string(decoding.name) == "Greedy") params.sampling.temperature = 0;
    if (id % 2 == 0 && decoding.beams == 1) params.sampling.frequency_penalty = 0.3;
    return params;
  }
  // A text of the target's, which begins as all of its texts do.
  std::vector<TokenId> Story(model::ModelRunner* runner) {
    constexpr uint64_t kId = 100;
    decoding::DecodingParams params = ParamsOf(kDecodings[0], kId, /*plain=*/true);
    params.max_tokens = 160;
    coordinator_ = QueuedCoordinator();
    coordinator_.Start(MakeStart(kId, params, {1}));
    RunOn(runner);
    std::vector<TokenId> story = {1};
    const auto& text = coordinator_.stable(kId);
    story.insert(story.end(), text.begin(), text.end());
    return story;
  }
  // The answers of all sequences, whose prompts are beginnings of the story.
  Answers Run(const Decoding& decoding, model::ModelRunner* runner,
              const std::vector<TokenId>& story, const proto::DraftNodes& nodes,
              std::unique_ptr<comm::ClientChannel> own = nullptr, int prefill_chunk = 32) {
    const bool plain = nodes.nodes_size() == 0 && own == nullptr;
    coordinator_ = QueuedCoordinator();
    for (uint64_t id = 1; id <= kSequences; ++id) {
      const size_t length = std::min(1 + (id - 1) * 30, story.size());
      coordinator_.Start(MakeStart(id, ParamsOf(decoding, id, plain),
                                   {story.begin(), story.begin() + static_cast<int>(length)}));
    }
    coordinator_.Send(nodes);
    EngineOptions options = Options(runner);
    options.scheduler.prefill_chunk = prefill_chunk;
    options.drafts.vocab_size = runner->vocab_size();
    options.drafts.min_deadline_s = 2;
    options.drafts.max_deadline_s = 4;
    options.suffixes.on = false;
    PoolStates states(runner);
    if (!plain) {
      options.drafts.states = &states;
      options.drafts.states_fingerprint = *model::StatesFingerprint(kHead, kTarget);
    }
    const int64_t used = runner->blocks()->counts().used;
    Engine engine(options, runner, plans_.get(), &coordinator_, &clock_);
    if (own != nullptr) engine.UseOwnDraft(std::move(own), /*takes_states=*/true);
    const absl::Status run = engine.Run();
    EXPECT_TRUE(run.ok()) << run;
    EXPECT_EQ(runner->blocks()->counts().used, used);
    EXPECT_THAT(coordinator_.errors(), IsEmpty());
    return coordinator_.finished();
  }
  static void ExpectSame(const Answers& some, const Answers& others) {
    ASSERT_EQ(some.size(), others.size());
    for (const auto& [id, answer] : some) ExpectSameAnswer(answer, others.at(id));
  }
  // Layers that a pass of the target decides.
  static double LayersPerPass(const Answers& answers) {
    return static_cast<double>(Sum(answers, &proto::SequenceStats::layers)) /
           static_cast<double>(Sum(answers, &proto::SequenceStats::target_passes));
  }
};

INSTANTIATE_TEST_SUITE_P(Reproducible, HeadAcceptanceTest, ::testing::ValuesIn(kDecodings),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(HeadAcceptanceTest, DraftsAreAcceptedAndChangeNoAnswer) {
  const auto without = LoadTarget(single_.get(), /*states=*/false);
  const std::vector<TokenId> story = Story(without.get());
  const Answers plain = Run(GetParam(), without.get(), story, {});
  EXPECT_EQ(Sum(plain, &proto::SequenceStats::drafted_nodes), 0u);

  const auto target = LoadTarget(single_.get(), /*states=*/true);
  {
    DraftNodeThread node([](comm::Communicator* single) { return *LoadHead(single); },
                         "direct://127.0.0.1:*", {}, *model::StatesFingerprint(kHead, kTarget));
    const Answers drafted = Run(GetParam(), target.get(), story, node.Nodes());
    EXPECT_EQ(node.failures(), 0);
    EXPECT_GT(LayersPerPass(drafted), GetParam().layers_per_pass);
    ExpectSame(plain, drafted);
  }
  const auto draft = draft_node::DraftThread::Load(LoadHead);
  ASSERT_TRUE(draft.ok()) << draft.status();
  const Answers own =
      Run(GetParam(), target.get(), story, {}, (*draft)->Serve({}), /*prefill_chunk=*/7);
  EXPECT_GT(LayersPerPass(own), GetParam().layers_per_pass);
  ExpectSame(plain, own);
}

}  // namespace
}  // namespace coppice::worker
