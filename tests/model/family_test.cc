// The forward pass of every family compared with the double-precision reference: prompts in chunks,
// forests, several ranks, types of weights.
#include "model/families/family.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "sampling/rng.h"
#include "tests/model/model_harness.h"
#include "tests/model/reference_model.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/thread_communicator.h"
#include "tests/testing/tiny_dflash.h"
#include "tests/testing/tiny_eagle3.h"
#include "tests/testing/tiny_family.h"

namespace coppice::model {
namespace {

class FamilyTest : public testing::TestWithParam<std::string> {
 protected:
  static std::vector<TokenId> SomeTokens(int count) {
    std::vector<TokenId> tokens;
    for (int i = 0; i < count; ++i)
      tokens.push_back(static_cast<TokenId>(sampling::Finalize(i + 17) % 96));
    return tokens;
  }

  // Rows [begin, end) of the reference, concatenated.
  static std::vector<double> Rows(const std::vector<std::vector<double>>& all, int begin, int end) {
    std::vector<double> rows;
    for (int t = begin; t < end; ++t) rows.insert(rows.end(), all[t].begin(), all[t].end());
    return rows;
  }

  // The relative error of the logits of a prompt that is read in two chunks: of the row that has
  // this part of the rows below it, by error; 1: the largest.
  double ErrorOf(const test::TinyLlama& tiny, const std::string& dtype,
                 comm::Communicator* communicator = nullptr, double part = 1) {
    const std::vector<TokenId> tokens = SomeTokens(70);
    auto loaded = LoadForTest({.dir = dir_.path(), .dtype = dtype, .max_rows = 64}, communicator);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    if (!loaded.ok()) return INFINITY;
    const auto expected = ReferenceLogits(tiny, tokens);
    std::vector<double> errors;
    for (const auto& [begin, end] : {std::pair(0, 41), std::pair(41, 70)}) {
      const auto logits = loaded->Run(PlanSketch(80).Prefix(tokens, begin, end, end - begin).plan);
      EXPECT_TRUE(logits.ok()) << logits.status();
      if (!logits.ok()) return INFINITY;
      if (communicator != nullptr && communicator->rank() > 0) continue;
      const size_t vocab = expected[0].size();
      for (int t = begin; t < end; ++t) {
        const auto row = logits->begin() + (t - begin) * vocab;
        errors.push_back(RelativeError({row, row + vocab}, Rows(expected, t, t + 1)));
      }
    }
    if (errors.empty()) return 0;
    std::sort(errors.begin(), errors.end());
    return errors[static_cast<size_t>(part * (errors.size() - 1))];
  }

  const test::TempDir dir_;
};

TEST_P(FamilyTest, LogitsAreThoseOfTheReference) {
  const test::TinyLlama tiny = test::MakeTinyFamily(GetParam());
  test::WriteTinyLlama(tiny, dir_.path());
  EXPECT_LT(ErrorOf(tiny, "auto"), 1e-5);
}

TEST_P(FamilyTest, LogitsOfTwoRanksAreThoseOfTheReference) {
  const test::TinyLlama tiny = test::MakeTinyFamily(GetParam());
  test::WriteTinyLlama(tiny, dir_.path());
  if (tiny.options.architecture == "Olmo2ForCausalLM") {  // refused
    test::RunRanks(2, [&](comm::Communicator* communicator) {
      const absl::Status status = LoadForTest({.dir = dir_.path()}, communicator).status();
      EXPECT_EQ(status.message(),
                dir_.path() +
                    ": Olmo2ForCausalLM has norms of q and k over all heads, not served "
                    "yet by several ranks (--tp)");
    });
    return;
  }
  test::RunRanks(2, [&](comm::Communicator* communicator) {
    EXPECT_LT(ErrorOf(tiny, "auto", communicator), 1e-5) << "rank " << communicator->rank();
  });
}

TEST_P(FamilyTest, LogitsOfABf16CheckpointAreThoseOfTheReference) {
  const test::TinyLlama tiny = test::MakeTinyFamily(GetParam(), {.dtype = "BF16"});
  test::WriteTinyLlama(tiny, dir_.path());
  EXPECT_LT(ErrorOf(tiny, "f32"), 1e-5);
  // K and V have 8 bits, on some CPUs also the inputs. A row whose two best experts are about equal
  // may then take the other one, so of a mixture of experts the middle row counts.
  const bool routed = tiny.config.find("num_experts_per_tok") != std::string::npos;
  EXPECT_LT(ErrorOf(tiny, "auto", nullptr, routed ? 0.5 : 1), 8e-2);
}

// Nodes of a forest see their path alone, in every layer as far as its window reaches.
TEST_P(FamilyTest, ForestsAreThoseOfTheReference) {
  const test::TinyLlama tiny = test::MakeTinyFamily(GetParam());
  test::WriteTinyLlama(tiny, dir_.path());
  auto loaded = LoadForTest({.dir = dir_.path(), .max_rows = 64});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const std::vector<TokenId> prompt = SomeTokens(29);
  ASSERT_TRUE(loaded->Run(PlanSketch(64).Prefix(prompt, 0, 29, 0).plan).ok());
  const std::vector<ForestNode> nodes = {{-1, 7}, {0, 9}, {0, 11}, {2, 3}, {-1, 50}, {4, 51}};
  const auto logits = loaded->Run(PlanSketch(64).Forest(29, nodes).plan);
  ASSERT_TRUE(logits.ok()) << logits.status();
  for (size_t node = 0; node < nodes.size(); ++node) {
    std::vector<TokenId> path;
    for (int at = static_cast<int>(node); at >= 0; at = nodes[at].parent)
      path.insert(path.begin(), nodes[at].token);
    path.insert(path.begin(), prompt.begin(), prompt.end());
    const std::vector<float> row(logits->begin() + node * 96, logits->begin() + (node + 1) * 96);
    EXPECT_LT(RelativeError(row, ReferenceLogits(tiny, path).back()), 1e-5) << "node " << node;
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, FamilyTest, testing::ValuesIn(test::TinyFamilies()),
                         [](const auto& info) { return info.param; });

// Whether a tiny draft that takes states of a target is read under this name.
bool HasATinyDraft(const Family& family) {
  const test::TinyLlama target = test::MakeTinyLlama({.layers = 4});
  for (test::TinyLlama draft : {test::MakeTinyEagle3(target), test::MakeTinyDFlash(target),
                                test::MakeTinyDFlash(target, {.dspark = true})}) {
    const test::TempDir dir;
    test::SetConfig(&draft, "architectures", absl::StrCat("[\"", family.architecture, "\"]"));
    test::WriteTinyLlama(draft, dir.path());
    const auto config = ReadModelConfig(dir.path());
    if (config.ok() && config->takes_states() && config->architecture == family.architecture)
      return true;
  }
  return false;
}

// Every family has a tiny checkpoint, so none is served untested.
TEST(Families, EachHasATinyCheckpoint) {
  for (const Family& family : Families()) {
    int checkpoints = 0;
    for (const std::string& name : test::TinyFamilies())
      checkpoints += test::MakeTinyFamily(name).options.architecture == family.architecture;
    EXPECT_TRUE(checkpoints > 0 || HasATinyDraft(family)) << family.architecture;
  }
}

// The reference tells the parts of the families apart: one that computes another part is noticed.
TEST(Families, TheReferenceNoticesWrongParts) {
  const std::vector<TokenId> tokens = {5,  9, 40, 3,  77, 12, 60, 31, 8,
                                       19, 2, 90, 45, 7,  33, 21, 10};
  const auto differs = [&](const char* name, const char* field, const char* value) {
    const test::TinyLlama right = test::MakeTinyFamily(name);
    test::TinyLlama wrong = right;
    test::SetConfig(&wrong, field, value);
    const std::vector<double> a = ReferenceLogits(right, tokens).back();
    const std::vector<double> b = ReferenceLogits(wrong, tokens).back();
    EXPECT_GT(RelativeError(std::vector<float>(a.begin(), a.end()), b), 1e-3)
        << name << " " << field;
  };
  differs("mistral", "sliding_window", "12");
  differs("gemma2", "attn_logit_softcapping", "6.0");
  differs("gemma2", "final_logit_softcapping", "4.0");
  differs("gemma3", "query_pre_attn_scalar", "20");
  differs("gemma3", "rope_local_base_freq", "20000");
  differs("gemma3", "sliding_window_pattern", "2");
  differs("granite", "residual_multiplier", "0.25");
  differs("smollm3", "no_rope_layers", "[1, 1, 1, 1]");
  differs("phi4_mini", "partial_rotary_factor", "0.5");
}

}  // namespace
}  // namespace coppice::model
