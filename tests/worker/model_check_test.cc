// What --check says of a model, and of one that is not well.
#include "worker/model_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_dflash.h"
#include "tests/testing/tiny_eagle3.h"
#include "tests/testing/tiny_family.h"
#include "tests/testing/tiny_quantised.h"
#include "worker/own_draft.h"

namespace coppice::worker {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

class ModelCheckTest : public testing::Test {
 protected:
  absl::StatusOr<std::string> Check(const test::TinyLlama& model, const CheckedUse& use = {},
                                    int ranks = 1, const std::string& kv_dtype = "auto") {
    test::WriteTinyLlama(model, dir_.path());
    model::ModelRunnerOptions options;
    options.dir = dir_.path();
    options.kv_dtype = kv_dtype;
    return CheckModel(options, ranks, use);
  }
  std::string Error(const test::TinyLlama& model, const CheckedUse& use = {}) {
    return std::string(Check(model, use).status().message());
  }

  const test::TempDir dir_;
};

TEST_F(ModelCheckTest, SaysWhatTheModelIs) {
  const auto lines = Check(test::MakeTinyFamily("gemma3"), {.tokens = 1000, .beams = 2});
  ASSERT_TRUE(lines.ok()) << lines.status();
  const std::vector<std::string> line = absl::StrSplit(*lines, '\n');
  ASSERT_EQ(line.size(), 5u);
  EXPECT_EQ(line[0], absl::StrCat(dir_.path(),
                                  ": Gemma3ForCausalLM, 4 layers of 32, 4 heads of 16 (2 of K and "
                                  "V), vocabulary 96, context 256, 3 layers with a window"));
  EXPECT_EQ(line[1], "weights: F32 in memory");
  EXPECT_THAT(line[2], StartsWith("tokenizer: none, "));
  // K and V of a token: 4 layers, 2 heads of 16, f32.
  EXPECT_THAT(line[3], HasSubstr("KV (F32) 0.00 GB to 0.00 GB for 2 beams of 1000 tokens"));
  // 63 blocks in the layer that sees everything, two in each of the others.
  EXPECT_EQ(line[4],
            "KV pages of 16 tokens in 1 layers, 4 for a block: windows keep 28 % of a sequence of "
            "1000 tokens");
  EXPECT_THAT(Check(test::MakeTinyFamily("mixtral"))->c_str(),
              HasSubstr("2 of 5 experts of a layer for each token"));
  EXPECT_THAT(*Check(test::MakeTinyFamily("qwen3"), {}, 2), HasSubstr("memory of each of 2 ranks"));
}

// Four layers of two heads of 16: 1024 bytes of a token in f32, 320 in 8 bits with scales. Windows
// keep a quarter.
TEST_F(ModelCheckTest, CountsKvInItsType) {
  const CheckedUse use = {.tokens = 10'000'000, .beams = 1};
  EXPECT_THAT(*Check(test::MakeTinyFamily("gemma3"), use), HasSubstr("KV (F32) 2.56 GB to"));
  EXPECT_THAT(*Check(test::MakeTinyFamily("gemma3"), use, 1, "int8"),
              HasSubstr("KV (I8) 0.80 GB to 0.80 GB for 1 beams"));
}

// 1024 bytes of K and V of a token, and a state of 64 values; windows give nothing back.
TEST_F(ModelCheckTest, CountsStatesWithKv) {
  const test::TempDir draft;
  const test::TinyLlama target = test::MakeTinyFamily("gemma3");
  test::WriteTinyLlama(target, dir_.path());
  test::WriteTinyLlama(test::MakeTinyEagle3(target, {.layers = {0, 2}, .hidden = 64}),
                       draft.path());
  model::ModelRunnerOptions options;
  options.dir = dir_.path();
  options.states_for = draft.path();
  const auto lines = CheckModel(options, /*ranks=*/1, {.tokens = 10'000'000, .beams = 1});
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_THAT(*lines, HasSubstr("KV (F32) 11.52 GB to 11.52 GB for 1 beams"));
  EXPECT_THAT(*lines,
              EndsWith(absl::StrCat("states: outputs of layers 0, 2 joined to 64 values for ",
                                    draft.path(), ", 128 bytes of the KV of a token")));
}

TEST_F(ModelCheckTest, SaysHowAQuantisedModelIsKept) {
  const test::TinyLlama model = test::MakeTinyLlama({.hidden = 64, .intermediate = 96});
  EXPECT_THAT(*Check(test::Quantise(model, {.layout = "gptq"}).folder),
              HasSubstr("\nweights: Q4_0 in memory"));
  EXPECT_THAT(*Check(test::Quantise(model, {.layout = "awq"}).folder),
              HasSubstr("\nweights: Q5_0 in memory"));
  test::TinyLlama folder = test::Quantise(model, {.layout = "awq"}).folder;
  folder.tensors.erase("model.layers.0.mlp.up_proj.scales");
  EXPECT_THAT(Error(folder), HasSubstr("model.layers.0.mlp.up_proj.scales: missing"));
}

TEST_F(ModelCheckTest, NamesWhatNothingReads) {
  test::TinyLlama model = test::MakeTinyFamily("qwen3");
  model.tensors["model.layers.0.extra.weight"] = model.tensors["model.norm.weight"];
  EXPECT_THAT(*Check(model), HasSubstr("; 1 tensors that nothing reads, such as "
                                       "model.layers.0.extra.weight"));
}

TEST_F(ModelCheckTest, NamesWhatIsWrongWithTensors) {
  const test::TinyLlama good = test::MakeTinyFamily("qwen3");
  test::TinyLlama model = good;
  model.tensors.erase("model.layers.2.mlp.up_proj.weight");
  EXPECT_THAT(Error(model), HasSubstr("model.layers.2.mlp.up_proj.weight"));
  model = good;
  model.tensors["model.layers.1.self_attn.q_norm.weight"].shape = {8};
  model.tensors["model.layers.1.self_attn.q_norm.weight"].values.resize(8);
  EXPECT_THAT(Error(model), HasSubstr("model.layers.1.self_attn.q_norm.weight"));
  model = good;
  model.tensors["model.norm.weight"].values[5] = NAN;
  EXPECT_THAT(Error(model),
              EndsWith("model.norm.weight: element 5 is nan, expected a finite number"));
  model = good;
  test::SetConfig(&model, "intermediate_size", "64");
  EXPECT_THAT(Error(model), HasSubstr("gate_proj.weight"));
}

TEST_F(ModelCheckTest, SaysWhetherADraftFits) {
  const test::TempDir draft;
  test::WriteTinyLlama(test::MakeTinyFamily("llama3", {.layers = 1}), draft.path());
  EXPECT_THAT(*Check(test::MakeTinyFamily("qwen3"), {.draft = draft.path()}),
              EndsWith(absl::StrCat("draft: ", draft.path(), " fits")));
  test::WriteTinyLlama(test::MakeTinyFamily("llama3", {.layers = 1, .vocab = 100}), draft.path());
  EXPECT_EQ(
      Error(test::MakeTinyFamily("qwen3"), {.draft = draft.path()}),
      absl::StrCat(draft.path(), ": the vocabulary has 100 ids, expected the 96 of ", dir_.path()));
}

TEST_F(ModelCheckTest, SaysWhatAHeadIsAndWhetherItFits) {
  const test::TinyLlama target = test::MakeTinyLlama({.layers = 6, .vocab = 96});
  const test::TempDir draft;
  test::WriteTinyLlama(test::MakeTinyEagle3(target, {.layers = {1, 2, 4}, .ids = {1, 5, 9}}),
                       draft.path());
  const CheckedUse use = {.draft = draft.path()};
  EXPECT_THAT(
      *Check(target, use),
      EndsWith(absl::StrCat("draft: ", draft.path(),
                            " fits, an EAGLE-3 head on layers 1, 2, 4 of the target, 3 ids")));
  EXPECT_THAT(
      Error(test::MakeTinyLlama({.layers = 6, .vocab = 100}), use),
      EndsWith(absl::StrCat("vocab_size: 96, expected 100 as the target ", dir_.path(), " has")));
  EXPECT_THAT(Error(test::MakeTinyLlama({.layers = 5, .vocab = 96}), use),
              HasSubstr("the output of layer 4, expected 0 to 3"));
  EXPECT_THAT(Error(test::MakeTinyLlama({.hidden = 64, .layers = 6, .vocab = 96}), use),
              HasSubstr("expected 64 as the target"));
}

TEST_F(ModelCheckTest, AHeadIsNoTarget) {
  const test::TinyLlama target = test::MakeTinyLlama({.layers = 4, .vocab = 96});
  const std::string expected =
      " is a draft that takes hidden states of its target, expected a target";
  EXPECT_THAT(Error(test::MakeTinyEagle3(target)), HasSubstr(expected));
  // It has all tensors that a target has.
  EXPECT_THAT(Error(test::MakeTinyDFlash(target, {.dspark = true, .owns_ends = true})),
              HasSubstr(expected));
  EXPECT_FALSE(CheckTarget(dir_.path()).ok());
}

// Which states a worker keeps.
TEST(StatesDraftTest, IsThatOfThisProcessOrOfTheDraftNodes) {
  const test::TinyLlama target = test::MakeTinyLlama({.layers = 4, .vocab = 96});
  const test::TempDir head, other, model;
  test::WriteTinyLlama(test::MakeTinyEagle3(target), head.path());
  test::WriteTinyLlama(test::MakeTinyEagle3(target, {.seed = 2}), other.path());
  test::WriteTinyLlama(target, model.path());
  WorkerFlags flags;
  const auto draft_of = [&](const std::string& draft, const std::string& states_for) {
    flags.draft.dir = draft;
    flags.node.runner.states_for = states_for;
    return StatesDraftOf(flags);
  };
  EXPECT_EQ(draft_of("", "")->dir, "");
  EXPECT_EQ(draft_of(model.path(), "")->dir, "");
  for (const std::string& draft : {std::string(), model.path()}) {
    EXPECT_EQ(draft_of(draft, head.path())->dir, head.path());
    EXPECT_FALSE(draft_of(draft, head.path())->own);
  }
  for (const std::string& states_for : {std::string(), head.path(), head.path() + "/."}) {
    EXPECT_EQ(draft_of(head.path(), states_for)->dir, head.path());
    EXPECT_TRUE(draft_of(head.path(), states_for)->own);
  }
  EXPECT_THAT(std::string(draft_of(head.path(), other.path()).status().message()),
              StartsWith(absl::StrCat("--states_for: ", other.path(), ", expected ", head.path())));
  EXPECT_THAT(std::string(draft_of("", model.path()).status().message()),
              HasSubstr("takes no states of a target"));
  EXPECT_THAT(std::string(draft_of("", "/no/such").status().message()),
              StartsWith("--states_for: "));
}

}  // namespace
}  // namespace coppice::worker
