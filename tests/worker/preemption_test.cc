// Sequences in a pool that is far too small for all of them: they are preempted again and again, in
// every phase, and every answer and score has the bits that it has alone.
#include "worker/preemption.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "grammar/compile.h"
#include "tests/testing/method_case.h"
#include "tests/testing/tiny_family.h"
#include "tests/testing/toy_text.h"
#include "tests/worker/draft_node_thread.h"
#include "tests/worker/engine_fixture.h"

namespace coppice::worker {
namespace {

using ::testing::IsEmpty;

constexpr TokenId kStop = 10;

struct Model {
  const char* family;  // "": Llama
  const char* kv_dtype;
};

class PreemptionTest : public EngineTest, public ::testing::WithParamInterface<Model> {
 protected:
  PreemptionTest() {
    const std::string family = GetParam().family;
    test::WriteTinyLlama(family.empty() ? Llama() : test::MakeTinyFamily(family, {.vocab = kVocab}),
                         model_dir_.path());
  }
  static test::TinyLlama Llama() { return test::MakeTinyLlama({.vocab = kVocab}); }
  // blocks: of the pool, at least; with windows, pages.
  std::unique_ptr<model::ModelRunner> Load(int64_t blocks) {
    model::ModelRunnerOptions options;
    options.dir = model_dir_.path();
    options.kv_dtype = GetParam().kv_dtype;
    options.threads = 1;
    options.kv_bytes = 1 << 20;
    auto runner = model::ModelRunner::Load(options, single_.get()).value();
    const kernels::KvPool& pool = *runner->kv_pool();
    options.kv_bytes = static_cast<int64_t>(pool.bytes) / pool.shape.blocks * (blocks + 1);
    return model::ModelRunner::Load(options, single_.get()).value();
  }
  static EngineOptions EngineOptionsOf(model::ModelRunner* runner) {
    EngineOptions options = Options(runner);
    options.scheduler.max_step_s = 0;
    options.scheduler.kv_storage = {.windows = runner->kv_layout().windows, .step_tokens = 32};
    options.vocabulary =
        std::make_shared<const tokenizer::Vocabulary>(test::ToyTokenizer(kVocab));
    return options;
  }
  // Of every kind that is reproducible. It expects to need hardly any KV.
  static proto::StartSequence Request(uint64_t id, bool drafts) {
    std::mt19937 random(id);
    static const std::vector<test::MethodCase> cases = test::MethodCases(
        [](const decoding::MethodRow& row) { return row.reproducible; });
    const test::MethodCase& method = cases[id % cases.size()];
    decoding::DecodingParams params =
        method.Params(/*max_tokens=*/8 + static_cast<int>(random() % 70), kStop, /*seed=*/id);
    params.plain = !drafts;
    if (params.beam_width > 1)
      params.beam_width = params.num_hypotheses = 2 + static_cast<int>(random() % 7);
    params.draft_width = method.DraftWidth(2 * params.beam_width);
    params.draft_depth = 2;
    params.min_tokens = static_cast<int>(random() % 8);
    if (random() % 4 == 0) params.sampling.repetition_penalty = 1.3;
    if (random() % 4 == 0 && params.kind != sampling::DecodingKind::kBeamSearch)
      params.stop_strings = {"ab"};
    if (params.min_tokens < 2) {
      params.min_tokens = 0;
      params.format_spec = {FormatSpec::Kind::kRegex, "[a-h]{0,60}"};
    }
    std::vector<TokenId> prompt;
    const int length = 3 + static_cast<int>(random() % 100);
    const auto group = static_cast<TokenId>(random() % 3);  // prompts of a group begin alike
    for (int i = 0; i < length; ++i)
      prompt.push_back((i < 40 ? i * 7 + group : static_cast<int>(random())) % kVocab);
    for (TokenId& token : prompt) token = std::abs(token);
    proto::StartSequence start = MakeStart(id, params, prompt);
    start.set_quiet(random() % 2 == 0);
    start.set_client(std::string(1, static_cast<char>('a' + random() % 3)));
    start.set_priority(static_cast<int>(random() % 3));
    start.set_expected_kv_blocks(1);
    if (random() % 2 == 0) start.set_logprobs(static_cast<int>(random() % 3));
    if (start.has_logprobs() && random() % 2 == 0) start.set_score_prompt(true);
    if (start.score_prompt() && random() % 3 == 0) start.set_score_only(true);
    return start;
  }
  static std::vector<proto::StartSequence> Requests(uint64_t count, bool drafts) {
    std::vector<proto::StartSequence> starts;
    for (uint64_t id = 1; id <= count; ++id) starts.push_back(Request(id, drafts));
    return starts;
  }
  // Of a pool into which every one fits alone.
  static int64_t LargestBound(model::ModelRunner* runner,
                              const std::vector<proto::StartSequence>& starts) {
    const KvStorage storage = EngineOptionsOf(runner).scheduler.kv_storage;
    int64_t largest = 0;
    for (const proto::StartSequence& start : starts) {
      const auto params = proto::DecodingFromMessage(start.decoding());
      largest = std::max(largest, decoding::KvPagesBound(*params, start.prompt_size(), storage));
    }
    return largest;
  }
  // Everything that the coordinator was told about an answer.
  std::string Answer(uint64_t id) {
    std::string text;
    for (const proto::Hypothesis& hypothesis : coordinator_.finished().at(id).hypotheses())
      text += hypothesis.SerializeAsString();
    const auto add = [&](const std::vector<proto::TokenScore>& scores) {
      for (const proto::TokenScore& score : scores) text += score.SerializeAsString();
    };
    add(coordinator_.prompt_scores(id));
    add(coordinator_.stable_scores(id));
    for (const TokenId token : coordinator_.stable(id)) text += absl::StrCat(token, " ");
    return text;
  }
  // Answers by id, of all requests together or one after the other.
  std::map<uint64_t, std::string> Decode(model::ModelRunner* runner,
                                         const std::vector<proto::StartSequence>& starts,
                                         bool together, const proto::DraftNodes& nodes = {}) {
    coordinator_ = QueuedCoordinator();
    coordinator_.Send(nodes);
    for (const proto::StartSequence& start : starts) {
      coordinator_.Start(start);
      if (!together) RunOn(runner, EngineOptionsOf(runner), clock_);
    }
    if (together) RunOn(runner, EngineOptionsOf(runner), clock_);
    EXPECT_THAT(coordinator_.errors(), IsEmpty());
    std::map<uint64_t, std::string> answers;
    for (const auto& [id, update] : coordinator_.finished()) {
      answers[id] = Answer(id);
      preemptions_ += update.stats().preemptions();
      drafted_ += update.stats().drafted_nodes();
    }
    return answers;
  }

  static void ExpectSame(const std::map<uint64_t, std::string>& got,
                         const std::map<uint64_t, std::string>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [id, answer] : want) {
      const proto::StartSequence start = Request(id, false);
      EXPECT_TRUE(got.at(id) == answer)
          << "sequence " << id << ": " << start.decoding().method() << " "
          << start.decoding().kind() << ", logprobs " << start.logprobs() << ", scores prompt "
          << start.score_prompt();
    }
  }

  test::TempDir model_dir_;
  uint64_t preemptions_ = 0, drafted_ = 0;
};

TEST_P(PreemptionTest, EveryAnswerIsWhatItIsAlone) {
  const std::vector<proto::StartSequence> starts = Requests(600, /*drafts=*/false);
  const auto large = Load(1000);
  const std::map<uint64_t, std::string> alone = Decode(large.get(), starts, /*together=*/false);
  ASSERT_EQ(alone.size(), starts.size());
  EXPECT_EQ(preemptions_, 0u);
  const auto small = Load(LargestBound(large.get(), starts));
  ExpectSame(Decode(small.get(), starts, /*together=*/true), alone);
  EXPECT_GT(preemptions_, 60u);
}

TEST_P(PreemptionTest, AlsoWithDrafts) {
  const std::vector<proto::StartSequence> plain = Requests(200, /*drafts=*/false),
                                          drafted = Requests(200, /*drafts=*/true);
  const auto large = Load(1000);
  const std::map<uint64_t, std::string> alone = Decode(large.get(), plain, /*together=*/false);
  const auto small = Load(LargestBound(large.get(), drafted));
  DraftNodeThread node(Llama(), "direct://127.0.0.1:*");
  ExpectSame(Decode(small.get(), drafted, /*together=*/true, node.Nodes()), alone);
  EXPECT_GT(preemptions_, 25u);
  EXPECT_GT(drafted_, 1000u);
}

// A third is cancelled, in whatever phase it is.
TEST_P(PreemptionTest, CancelledOnesLeaveNothing) {
  const std::vector<proto::StartSequence> starts = Requests(200, /*drafts=*/false);
  const auto large = Load(1000);
  const std::map<uint64_t, std::string> alone = Decode(large.get(), starts, /*together=*/false);
  const auto small = Load(LargestBound(large.get(), starts));
  coordinator_ = QueuedCoordinator();
  for (const proto::StartSequence& start : starts) coordinator_.Start(start);
  coordinator_.EveryTurn([&](int turn) {
    if (turn > 0 && turn < 200 && turn % 3 == 0 && coordinator_.finished().count(turn) == 0) {
      coordinator_.Cancel(turn);
      coordinator_.WaitFor(-1);
    }
    EXPECT_TRUE(small->blocks()->CheckIntegrity().ok()) << small->blocks()->CheckIntegrity();
  });
  RunOn(small.get(), EngineOptionsOf(small.get()), clock_);
  EXPECT_THAT(coordinator_.errors(), IsEmpty());
  for (const auto& [id, update] : coordinator_.finished()) {
    preemptions_ += update.stats().preemptions();
    EXPECT_TRUE(Answer(id) == alone.at(id)) << id;
  }
  EXPECT_GE(coordinator_.finished().size(), 133u);
  EXPECT_LT(coordinator_.finished().size(), 170u);
  EXPECT_GT(preemptions_, 15u);
}

// The youngest of the lowest priority.
TEST(PreemptionOrderTest, TheOldestOfTheBestPriorityIsTheLast) {
  std::vector<Sequence> sequences(4);
  std::vector<Sequence*> running;
  const std::pair<int, uint64_t> ranks[] = {{0, 9}, {1, 2}, {0, 4}, {1, 1}};
  for (int i = 0; i < 4; ++i) {
    sequences[i].priority = ranks[i].first;
    sequences[i].arrival_order = ranks[i].second;
    running.push_back(&sequences[i]);
  }
  for (const int next : {1, 3, 0, 2}) {
    EXPECT_EQ(FirstToPreempt(running), &sequences[next]);
    std::erase(running, &sequences[next]);
  }
  EXPECT_EQ(FirstToPreempt(running), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Models, PreemptionTest,
                         ::testing::Values(Model{"", "auto"}, Model{"", "int8"},
                                           Model{"gemma3", "auto"}),
                         [](const auto& info) {
                           return std::string(info.param.family[0] == 0 ? "Llama" : "Windows") +
                                  info.param.kv_dtype;
                         });

}  // namespace
}  // namespace coppice::worker
