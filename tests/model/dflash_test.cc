// The forward pass of block drafters compared with the naive double-precision reference, and the
// bias of DSpark.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "kernels/element.h"
#include "model/model_runner.h"
#include "tests/model/dflash_run.h"
#include "tests/model/reference_model.h"

namespace coppice::model {
namespace {

struct Case {
  const char* name;
  test::TinyDFlashOptions options;
  double tolerance = 2e-5;  // relative to the largest logit
};
class DFlashCase : public testing::TestWithParam<Case> {};

TEST_P(DFlashCase, LogitsOfABlockAreThoseOfTheReference) {
  const double error = ErrorOfABlock(GetParam().options);
  EXPECT_LT(error, GetParam().tolerance);
  RecordProperty("error", std::to_string(error));
}

INSTANTIATE_TEST_SUITE_P(
    Published, DFlashCase,
    testing::Values(Case{"DFlash", {}}, Case{"OneLayer", {.layers = 1}},
                    Case{"FiveLayersWithoutSharedHeads", {.layers = 5, .kv_heads = 4}},
                    Case{"OneKvHead", {.kv_heads = 1, .head_dim = 24}},
                    Case{"BlockOf16", {.block = 16}},
                    Case{"DSpark", {.block = 7, .markov_rank = 8, .dspark = true}},
                    Case{"DSparkWithItsEnds", {.dspark = true, .owns_ends = true}},
                    Case{"BF16", {.dtype = "BF16"}, 6e-2}),
    [](const auto& info) { return info.param.name; });

TEST(DFlash, BlocksOfOnePassDoNotSeeEachOther) { EXPECT_LT(ErrorOfTwoBlocks({}), 2e-5); }

// Outputs of the chosen layers, joined and then normed.
TEST(DFlash, ATargetKeepsTheStatesThatADrafterTakes) {
  const test::TempDir dir, target_dir;
  const test::TinyLlama target = test::MakeTinyLlama({.layers = 4});
  const test::TinyLlama draft = test::MakeTinyDFlash(target, {.target_layers = {0, 2}});
  test::WriteTinyLlama(target, target_dir.path());
  test::WriteTinyLlama(draft, dir.path());
  ModelRunnerOptions options;
  options.dir = target_dir.path();
  options.states_for = dir.path();
  options.kv_bytes = 1 << 20;
  options.threads = 1;
  const auto single = comm::MakeSingleCommunicator();
  const auto runner = ModelRunner::Load(options, single.get());
  ASSERT_TRUE(runner.ok()) << runner.status();
  ASSERT_EQ((*runner)->state_columns(), kDFlashHidden);
  const std::vector<TokenId> tokens = {3, 17, 90, 4, 61, 33, 8};
  StepBuilder step = (*runner)->NewStep();
  const SequenceHandle sequence = (*runner)->blocks()->Open({}, nullptr);
  const auto slots = (*runner)->blocks()->AppendPrefix(sequence, tokens);
  step.AddPrefixRows(sequence, tokens, *slots);
  ASSERT_TRUE((*runner)->Submit(std::move(step)).ok());
  ASSERT_TRUE((*runner)->Wait().ok());
  std::vector<uint16_t> states(tokens.size() * kDFlashHidden);
  ASSERT_TRUE((*runner)->ReadStates(*slots, states.data()).ok());
  const auto outputs = ReferenceOutputs(target, tokens);
  for (size_t t = 0; t < tokens.size(); ++t) {
    const std::vector<double> state =
        ReferenceDFlash(draft, target).State(Joined({outputs[0][t], outputs[2][t]}));
    for (int c = 0; c < kDFlashHidden; ++c) {
      EXPECT_NEAR(kernels::Bf16ToFloat(states[t * kDFlashHidden + c]), state[c],
                  std::fabs(state[c]) / 256 + 1e-4)
          << "token " << t << " column " << c;
    }
  }
}

TEST(DFlash, TheBiasOfATokenIsTheProductOfItsRows) {
  const Drafted drafted({.markov_rank = 11, .dtype = "BF16"});
  const MarkovBias* const markov = drafted.loaded().parts().weights.markov.get();
  ASSERT_NE(markov, nullptr);
  const std::vector<TokenId> tokens = {3, 17, 95, 0};
  std::vector<float> logits = {1, -2, 0.5, 4};
  const std::vector<float> before = logits;
  markov->Add(29, tokens, absl::MakeSpan(logits));
  const std::vector<double> bias = drafted.reference().MarkovBias(29);
  for (size_t i = 0; i < tokens.size(); ++i)
    EXPECT_NEAR(logits[i], before[i] + bias[tokens[i]], 1e-5);
}

}  // namespace
}  // namespace coppice::model
