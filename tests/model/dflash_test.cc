// The forward pass of drafters of blocks compared with the naive double-precision reference, and the
// bias of DSpark.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/model/dflash_run.h"

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
