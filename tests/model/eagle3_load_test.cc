// EAGLE-3 heads that are refused when they are loaded, by name, and those whose values are hostile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "kernels/element.h"
#include "model/draft_checkpoint.h"
#include "model/model_runner.h"
#include "model/target_states.h"
#include "model/weights.h"
#include "tests/model/eagle3_run.h"
#include "tests/model/model_harness.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/thread_communicator.h"
#include "tests/testing/tiny_eagle3.h"
#include "tests/testing/tiny_gguf.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

using testing::HasSubstr;

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
  EXPECT_THAT(
      refusal([](test::TinyLlama* head) { head->tensors["d2t"].values.back() = kHeadVocab; }),
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

// An embedding in blocks stays in them, and gives the rows that a folder with its values gives.
TEST(Eagle3Load, TakesTheEmbeddingOfAGgufTargetAsItIsStored) {
  test::TinyLlama target = HeadTarget();
  test::TempDir dir, target_dir;
  test::WriteTinyLlama(test::MakeTinyEagle3(target, {.ids = EveryThirdId()}), dir.path());
  test::GgufBuilder file = test::GgufOf(target);
  const std::string name = "model.embed_tokens.weight";
  test::TinyTensor& embedding = target.tensors[name];
  std::mt19937 random(7);
  std::vector<float> values;
  const std::string blocks =
      test::RandomBlocks(static_cast<int64_t>(embedding.values.size()), &random, &values);
  file.Tensor(test::GgufNameOf(name), embedding.shape, /*type=*/8, blocks);  // Q8_0
  embedding.values = values;
  target_dir.Write("model.gguf", file.Bytes());
  test::WriteTinyLlama(target, target_dir.path());
  StepPlan plan = PlanSketch(32).Prefix({5, 17, 90, 3}, 0, 4, 4).plan;
  plan.state = {0, 1, 2, 3};
  for (int i = 0; i < 4; ++i) {
    const State state = TrueState(i, 64);
    plan.states.insert(plan.states.end(), state.begin(), state.end());
  }
  const auto load = [&](const std::string& of_target) {
    auto loaded = LoadForTest({.dir = dir.path(), .target = of_target, .max_rows = 8});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return std::pair(*loaded->Run(plan), loaded->parts().weights.embedding->bytes);
  };
  const auto [of_folder, folder_bytes] = load(target_dir.path());
  const auto [of_file, file_bytes] = load(target_dir.File("model.gguf"));
  EXPECT_EQ(of_file, of_folder);
  EXPECT_LT(file_bytes, folder_bytes / 3) << "a byte and a bit instead of four";
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
  step.SetState(0, std::vector<uint16_t>(64, kernels::FloatToBf16(0.5f)));
  ASSERT_TRUE((*runner)->Submit(std::move(step)).ok());
  const auto rows = (*runner)->Wait();
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_TRUE(std::isnan((*rows)->Whole(0)[0]));
}

}  // namespace
}  // namespace coppice::model
