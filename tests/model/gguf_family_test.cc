// Tiny checkpoints of the families that GGUF has, written as files by what its specification and
// the programs that write them say: the logits are those of the double-precision reference.
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "sampling/rng.h"
#include "tests/model/model_harness.h"
#include "tests/model/reference_model.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_family.h"
#include "tests/testing/tiny_family_gguf.h"

namespace coppice::model {
namespace {

class GgufFamilyTest : public testing::TestWithParam<std::string> {
 protected:
  // The tiny family, with what a file cannot say otherwise as its format assumes it.
  static test::TinyLlama Model() {
    const bool gemma3 = GetParam() == "gemma3";
    test::TinyLlama model = test::MakeTinyFamily(GetParam(), {.layers = gemma3 ? 7 : 4});
    if (!absl::StartsWith(GetParam(), "gemma")) return model;
    test::SetConfig(&model, "query_pre_attn_scalar", "16");  // head_dim
    test::SetConfig(&model, "torch_dtype", "\"bfloat16\"");  // that of the original
    if (gemma3) test::SetConfig(&model, "sliding_window_pattern", "6");
    return model;
  }
  std::string Write(const test::TinyLlama& model) {
    dir_.Write("model.gguf", test::GgufOfFamily(model).Bytes());
    return dir_.File("model.gguf");
  }

  const test::TempDir dir_;
};

TEST_P(GgufFamilyTest, LogitsAreThoseOfTheReference) {
  const test::TinyLlama model = Model();
  auto loaded = LoadForTest({.dir = Write(model), .dtype = "f32", .max_rows = 64});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  std::vector<TokenId> tokens;
  for (int i = 0; i < 60; ++i)
    tokens.push_back(static_cast<TokenId>(sampling::Finalize(i + 17) % 96));
  const auto logits = loaded->Run(PlanSketch(64).Prefix(tokens, 0, 60, 60).plan);
  ASSERT_TRUE(logits.ok()) << logits.status();
  std::vector<double> rows;
  for (const std::vector<double>& row : ReferenceLogits(model, tokens))
    rows.insert(rows.end(), row.begin(), row.end());
  EXPECT_LT(RelativeError(*logits, rows), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Tiny, GgufFamilyTest,
                         testing::Values("mixtral", "qwen3", "qwen3_moe", "gemma2", "gemma3",
                                         "phi3", "phi3_long", "phi4_mini"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace coppice::model
