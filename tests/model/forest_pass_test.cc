// Batch invariance of whole passes. The logits of a forest row are, bit for bit, those of the same
// row decoded alone with its tokens in the prefix. This holds whatever else is in the batch, and
// before and after a commit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sampling/rng.h"
#include "tests/model/model_harness.h"
#include "tests/model/reference_model.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/thread_communicator.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

constexpr int kVocab = 96;
constexpr int kPrefix = 21;  // not a whole number of blocks

std::vector<TokenId> Prompt() {
  std::vector<TokenId> tokens;
  for (int i = 0; i < kPrefix; ++i)
    tokens.push_back(static_cast<TokenId>(sampling::Finalize(i + 5) % kVocab));
  return tokens;
}

//      0       1
//     / \      |
//    2   3     4
//   / \        |
//  5   6       7
const std::vector<ForestNode> kForest = {{-1, 11}, {-1, 40}, {0, 7},  {0, 8},
                                         {1, 9},   {2, 30},  {2, 31}, {4, 7}};

std::vector<TokenId> PathTokens(int node) {
  std::vector<TokenId> tokens = Prompt(), path;
  for (; node >= 0; node = kForest[node].parent) path.push_back(kForest[node].token);
  tokens.insert(tokens.end(), path.rbegin(), path.rend());
  return tokens;
}

std::vector<float> Row(const std::vector<float>& logits, int row) {
  return {logits.begin() + row * kVocab, logits.begin() + (row + 1) * kVocab};
}

// The logits of the last token of a sequence, decoded alone after a prefix that was built one token
// at a time.
std::vector<float> DecodedAlone(LoadedModel* loaded, const std::vector<TokenId>& tokens) {
  std::vector<float> logits;
  for (int t = 0; t < static_cast<int>(tokens.size()); ++t) {
    logits = *loaded->Run(PlanSketch(64).Prefix(tokens, t, t + 1, 1).plan);
  }
  return logits;
}

class ForestPass : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  void SetUp() override {
    test::TinyLlamaOptions options{.kv_heads = 2, .vocab = kVocab};
    const std::string type = std::get<0>(GetParam());
    weight_dtype_ = type == "I8" ? "int8" : type == "I4" ? "int4" : "auto";
    if (type == "BF16KvI8") kv_dtype_ = "int8";
    options.dtype = type == "F32" ? "F32" : "BF16";
    tiny_ = test::MakeTinyLlama(options);
    test::WriteTinyLlama(tiny_, dir_.path());
  }

  // Runs body(model) on every rank. Returns the result of rank 0.
  template <typename Body>
  void OnEveryRank(const Body& body) {
    test::RunRanks(std::get<1>(GetParam()), [&](comm::Communicator* communicator) {
      auto loaded = LoadForTest({.dir = dir_.path(),
                                 .weight_dtype = weight_dtype_,
                                 .kv_dtype = kv_dtype_,
                                 .max_rows = 64},
                                communicator);
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      body(&*loaded, communicator->rank() == 0);
    });
  }

  test::TempDir dir_;
  test::TinyLlama tiny_;
  std::string weight_dtype_, kv_dtype_ = "auto";
};

TEST_P(ForestPass, RowHasTheBitsOfThatRowDecodedAlone) {
  OnEveryRank([](LoadedModel* loaded, bool leader) {
    ASSERT_TRUE(loaded->Run(PlanSketch(64).Prefix(Prompt(), 0, kPrefix, 0).plan).ok());
    const std::vector<float> forest = *loaded->Run(PlanSketch(64).Forest(kPrefix, kForest).plan);
    for (int node = 0; node < static_cast<int>(kForest.size()); ++node) {
      const std::vector<float> alone = DecodedAlone(loaded, PathTokens(node));
      if (leader) {
        EXPECT_EQ(Row(forest, node), alone) << "node " << node;
      }
    }
  });
}

TEST_P(ForestPass, RowDoesNotDependOnItsNeighbours) {
  OnEveryRank([](LoadedModel* loaded, bool leader) {
    const PlanSketch alone = PlanSketch(64).Forest(kPrefix, kForest);
    ASSERT_TRUE(loaded->Run(PlanSketch(64).Prefix(Prompt(), 0, kPrefix, 0).plan).ok());
    const std::vector<float> expected = *loaded->Run(alone.plan);
    // The whole prompt and the forest in one batch. The forest rows follow the prefix rows.
    const PlanSketch both = PlanSketch(64).Prefix(Prompt(), 0, kPrefix, 0).Forest(kPrefix, kForest);
    const std::vector<float> mixed = *loaded->Run(both.plan);
    if (leader) {
      EXPECT_EQ(mixed, expected);
    }
  });
}

TEST_P(ForestPass, CommittedTokensReadLikePrefix) {
  OnEveryRank([](LoadedModel* loaded, bool leader) {
    PlanSketch round = PlanSketch(64).Prefix(Prompt(), 0, kPrefix, 0).Forest(kPrefix, kForest);
    ASSERT_TRUE(loaded->Run(round.plan).ok());
    // Nodes 0 and 2 survive and move to the prefix. Then the token of node 6 follows them.
    PlanSketch next(64);
    next.plan.commits = {{next.scratch_slot(0), next.prefix_slot(kPrefix)},
                         {next.scratch_slot(2), next.prefix_slot(kPrefix + 1)}};
    next.Forest(kPrefix + 2, {{-1, kForest[6].token}});
    const std::vector<float> after = *loaded->Run(next.plan);
    const std::vector<float> alone = DecodedAlone(loaded, PathTokens(6));
    if (leader) {
      EXPECT_EQ(after, alone);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(DTypesAndRanks, ForestPass,
                         testing::Combine(testing::Values("F32", "BF16", "I8", "I4", "BF16KvI8"),
                                          testing::Values(1, 2)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "On" +
                                  std::to_string(std::get<1>(info.param));
                         });

// The bits above would also agree if every row ignored the tree. This test checks the values.
TEST(ForestPassValues, RowSeesItsOwnAncestorsAlone) {
  const test::TempDir dir;
  const test::TinyLlama tiny = test::MakeTinyLlama({.vocab = kVocab});
  test::WriteTinyLlama(tiny, dir.path());
  auto loaded = LoadForTest({.dir = dir.path(), .max_rows = 64});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const PlanSketch both = PlanSketch(64).Prefix(Prompt(), 0, kPrefix, 0).Forest(kPrefix, kForest);
  const std::vector<float> logits = *loaded->Run(both.plan);
  for (int node = 0; node < static_cast<int>(kForest.size()); ++node) {
    EXPECT_LT(RelativeError(Row(logits, node), ReferenceLogits(tiny, PathTokens(node)).back()),
              1e-5);
  }
}

}  // namespace
}  // namespace coppice::model
