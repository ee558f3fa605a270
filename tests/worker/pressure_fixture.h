// For tests of an engine whose KV pool is too small for its load: mixed requests, small pools, and
// everything that the coordinator was told about an answer.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "grammar/compile.h"
#include "tests/testing/method_case.h"
#include "tests/testing/tiny_family.h"
#include "tests/testing/tiny_runner.h"
#include "tests/testing/toy_text.h"
#include "tests/worker/engine_fixture.h"

namespace coppice::worker {

struct PressedModel {
  const char* family;  // "": Llama
  const char* kv_dtype;
};

class PressureTest : public EngineTest {
 protected:
  explicit PressureTest(const PressedModel& model) : model_(model) {
    const std::string family = model.family;
    test::WriteTinyLlama(family.empty() ? Llama() : test::MakeTinyFamily(family, {.vocab = kVocab}),
                         model_dir_.path());
  }
  static constexpr TokenId kStop = 10;
  static test::TinyLlama Llama() { return test::MakeTinyLlama({.vocab = kVocab}); }
  // blocks: of the pool, at least; with windows, pages.
  std::unique_ptr<model::ModelRunner> Load(int64_t blocks) {
    model::ModelRunnerOptions options;
    options.dir = model_dir_.path();
    options.kv_dtype = model_.kv_dtype;
    options.threads = 1;
    return test::LoadWithBlocks(options, blocks, single_.get());
  }
  static EngineOptions EngineOptionsOf(model::ModelRunner* runner) {
    EngineOptions options = Options(runner);
    options.scheduler.max_step_s = 0;
    options.scheduler.kv_storage = {.windows = runner->kv_layout().windows, .step_tokens = 32};
    options.vocabulary = std::make_shared<const tokenizer::Vocabulary>(test::ToyTokenizer(kVocab));
    return options;
  }
  // Of every kind that is reproducible. It expects to need hardly any KV.
  static proto::StartSequence Request(uint64_t id, bool drafts) {
    std::mt19937 random(id);
    static const std::vector<test::MethodCase> cases =
        test::MethodCases([](const decoding::MethodRow& row) { return row.reproducible; });
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
    EXPECT_THAT(coordinator_.errors(), ::testing::IsEmpty());
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

  const PressedModel model_;
  test::TempDir model_dir_;
  uint64_t preemptions_ = 0, drafted_ = 0;
};

}  // namespace coppice::worker
