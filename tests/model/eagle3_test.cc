// The forward pass of EAGLE-3 heads against a float64 one: prompts in chunks, forests in which each
// node has a state of its own, true states after drafted ones. What is read of folders:
// eagle3_config_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "model/draft_checkpoint.h"
#include "model/model_runner.h"
#include "model/target_states.h"
#include "model/weights.h"
#include "tests/model/eagle3_run.h"
#include "tests/model/model_harness.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/thread_communicator.h"
#include "tests/testing/tiny_eagle3.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

using testing::HasSubstr;

constexpr int kVocab = kHeadVocab;

class Eagle3 : public testing::TestWithParam<HeadShape> {
 protected:
  static ModelRunnerOptions Options() {
    ModelRunnerOptions options;
    options.weight_dtype = GetParam().weight_dtype;
    options.kv_dtype = GetParam().kv_dtype;
    options.max_rows = 32;
    return options;
  }
};

TEST_P(Eagle3, RowsOfAPromptAreThoseOfTheReference) {
  const test::TinyLlama target = HeadTarget();
  HeadRun run(HeadOf(GetParam(), target), target, Options(), GetParam().relative);
  ASSERT_TRUE(run.ok());
  ReadPrompt(&run);
}

TEST_P(Eagle3, ForestsHaveStatesOfTheirOwnUntilTrueOnesCome) {
  const test::TinyLlama target = HeadTarget();
  HeadRun run(HeadOf(GetParam(), target), target, Options(), GetParam().relative);
  ASSERT_TRUE(run.ok());
  GrowForests(&run);
}

INSTANTIATE_TEST_SUITE_P(Heads, Eagle3, testing::ValuesIn(HeadShapes()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Eagle3Load, RefusesTensorsByName) {
  const test::TinyLlama target = HeadTarget();
  test::TempDir dir, target_dir;
  test::WriteTinyLlama(target, target_dir.path());
  const test::TinyLlama good = test::MakeTinyEagle3(target, {.ids = EveryThirdId()});
  const auto refusal = [&](const std::function<void(test::TinyLlama*)>& spoil) {
    test::TinyLlama head = good;
    spoil(&head);
    test::WriteTinyLlama(head, dir.path());
    const auto config = ReadDraftConfig(dir.path(), target_dir.path());
    EXPECT_TRUE(config.ok()) << config.status();
    const auto checkpoint = OpenCheckpoint(dir.path(), *config, target_dir.path());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    const absl::Status checked = CheckTensors(*config, checkpoint->get());
    const auto loaded = LoadForTest({.dir = dir.path(), .target = target_dir.path()});
    EXPECT_EQ(checked, loaded.status()) << "--check says what loading says";
    return std::string(checked.message());
  };
  const auto reshape = [](const char* name, std::vector<int64_t> shape) {
    return [=](test::TinyLlama* head) {
      int64_t count = 1;
      for (const int64_t size : shape) count *= size;
      head->tensors[name] = {"F32", shape, std::vector<float>(count)};
    };
  };
  EXPECT_EQ(refusal([](test::TinyLlama*) {}), "");
  EXPECT_THAT(refusal(reshape("fc.weight", {64, 128})),
              HasSubstr("fc.weight: shape [64, 128], expected [64, 192]"));
  EXPECT_THAT(refusal(reshape("midlayer.self_attn.q_proj.weight", {64, 64})),
              HasSubstr("midlayer.self_attn.q_proj.weight: shape [64, 64], expected [64, 128]"));
  EXPECT_THAT(
      refusal([](test::TinyLlama* head) { head->tensors.erase("midlayer.hidden_norm.weight"); }),
      HasSubstr("midlayer.hidden_norm.weight: missing"));
  EXPECT_THAT(refusal([](test::TinyLlama* head) { head->tensors.erase("d2t"); }),
              HasSubstr("d2t: missing"));
  EXPECT_THAT(refusal([](test::TinyLlama* head) { head->tensors["d2t"].values.back() = kVocab; }),
              HasSubstr("d2t: row 52 has 160, expected -52 to 107"));
  EXPECT_THAT(refusal([](test::TinyLlama* head) {
                head->tensors["norm.weight"].values[3] = std::nanf("");
              }),
              HasSubstr("norm.weight: element 3 is nan"));
  EXPECT_THAT(refusal([](test::TinyLlama* head) {
                test::SetConfig(head, "norm_before_fc", "true");
                head->tensors["input_norm.weight"] = {"F32", {192}, std::vector<float>(192, 1)};
                head->tensors["input_norm.weight"].values[7] = INFINITY;
              }),
              HasSubstr("input_norm.weight: element 7 is inf"));
  EXPECT_THAT(refusal(reshape("mask_hidden", {1, 192})),
              HasSubstr("mask_hidden: a head that drafts several tokens in one pass"));
}

TEST(Eagle3Load, AWiderHeadNeedsAnEmbeddingOfItsOwn) {
  const test::TinyLlama target = HeadTarget();
  test::TempDir dir, target_dir;
  test::WriteTinyLlama(target, target_dir.path());
  test::WriteTinyLlama(test::MakeTinyEagle3(target, {.hidden = 96}), dir.path());
  const auto loaded = LoadForTest({.dir = dir.path(), .target = target_dir.path()});
  EXPECT_THAT(loaded.status().message(),
              HasSubstr("the draft has no embed_tokens.weight and cannot take this: "));
  EXPECT_THAT(loaded.status().message(), HasSubstr("shape [160, 64], expected [160, 96]"));
}

TEST(Eagle3Load, HasOneRank) {
  const test::TinyLlama target = HeadTarget();
  test::TempDir dir, target_dir;
  test::WriteTinyLlama(target, target_dir.path());
  test::WriteTinyLlama(test::MakeTinyEagle3(target), dir.path());
  test::RunRanks(2, [&](comm::Communicator* communicator) {
    const auto loaded = LoadForTest({.dir = dir.path(), .target = target_dir.path()}, communicator);
    EXPECT_THAT(loaded.status().message(),
                HasSubstr("LlamaForCausalLMEagle3 is a draft that takes the states of its target, "
                          "not served by several ranks (--tp)"));
  });
}

// Values that are no numbers make drafts that are never accepted; the pass itself goes on.
TEST(Eagle3Load, HostileValuesStayInTheirRows) {
  const test::TinyLlama target = HeadTarget();
  test::TinyLlama head = test::MakeTinyEagle3(target);
  head.tensors["midlayer.mlp.down_proj.weight"].values[0] = std::nanf("");
  test::TempDir dir, target_dir;
  test::WriteTinyLlama(target, target_dir.path());
  test::WriteTinyLlama(head, dir.path());
  ModelRunnerOptions options;
  options.dir = dir.path();
  options.target = target_dir.path();
  options.kv_bytes = 1 << 20;
  options.threads = 1;
  const auto single = comm::MakeSingleCommunicator();
  const auto runner = ModelRunner::Load(options, single.get());
  ASSERT_TRUE(runner.ok()) << runner.status();
  int cached = 0;
  const SequenceHandle sequence = (*runner)->blocks()->Open({}, &cached);
  const auto slots = (*runner)->blocks()->AppendPrefix(sequence, {3});
  StepBuilder step = (*runner)->NewStep();
  step.AddPrefixRows(sequence, {3}, *slots, [](int) { return RowNeed(); });
  step.SetState(0, TrueState(1, 64));
  ASSERT_TRUE((*runner)->Submit(std::move(step)).ok());
  const auto rows = (*runner)->Wait();
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_TRUE(std::isnan((*rows)->Whole(0)[0]));
}

}  // namespace
}  // namespace coppice::model
