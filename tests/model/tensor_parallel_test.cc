// Several ranks as threads of this process. They give the same logits as one rank. If one fails,
// all return errors and none hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "sampling/rng.h"
#include "tests/model/model_harness.h"
#include "tests/model/reference_model.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/thread_communicator.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

using testing::HasSubstr;

std::vector<TokenId> SomeTokens(int count, int vocab) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i)
    tokens.push_back(static_cast<TokenId>(sampling::Finalize(i + 99) % vocab));
  return tokens;
}

struct Case {
  const char* name;
  test::TinyLlamaOptions options;
  int ranks = 2;
};

class TensorParallel : public testing::TestWithParam<Case> {};

TEST_P(TensorParallel, LogitsAreThoseOfOneRank) {
  const test::TempDir dir;
  const test::TinyLlama tiny = test::MakeTinyLlama(GetParam().options);
  test::WriteTinyLlama(tiny, dir.path());
  const std::vector<TokenId> tokens = SomeTokens(24, tiny.options.vocab);
  const StepPlan plan = PlanSketch(32).Prefix(tokens, 0, 24, 3).plan;
  std::vector<double> expected;
  const auto reference = ReferenceLogits(tiny, tokens);
  for (int t = 21; t < 24; ++t)
    expected.insert(expected.end(), reference[t].begin(), reference[t].end());
  std::vector<std::vector<float>> logits(GetParam().ranks);
  std::vector<uint64_t> fingerprints(GetParam().ranks);
  test::RunRanks(GetParam().ranks, [&](comm::Communicator* communicator) {
    auto loaded = LoadForTest({.dir = dir.path(), .max_rows = 32}, communicator);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    logits[communicator->rank()] = *loaded->Run(plan);
    fingerprints[communicator->rank()] = loaded->parts().fingerprint;
  });
  ASSERT_EQ(logits[0].size(), expected.size());
  EXPECT_LT(RelativeError(logits[0], expected), 1e-5);
  for (int rank = 1; rank < GetParam().ranks; ++rank) {
    EXPECT_THAT(logits[rank], testing::IsEmpty());
    EXPECT_EQ(fingerprints[rank], fingerprints[0]);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, TensorParallel,
    testing::Values(Case{"TwoRanks", {}}, Case{"FourRanksReplicateKvHeads", {}, 4},
                    Case{"Tied", {.tied = true}}, Case{"VocabularyNotDivisible", {.vocab = 97}, 4},
                    Case{"TiedVocabularyNotDivisible", {.vocab = 97, .tied = true}},
                    Case{"MlpNotDivisible", {.intermediate = 51}, 4},
                    Case{"KvHeadsNotDivisible", {.hidden = 48, .heads = 6, .kv_heads = 3}},
                    Case{"ThreeRanksShareTwoKvHeads", {}, 3},
                    Case{"Biases", {.attention_bias = true, .mlp_bias = true}},
                    Case{"Qwen2", {.architecture = "Qwen2ForCausalLM"}},
                    Case{"Sharded", {.shards = 2}, 4}),
    [](const auto& info) { return info.param.name; });

TEST(TensorParallelLoad, WeightsAreDividedAmongRanks) {
  const test::TempDir dir;
  test::WriteTinyLlama(
      test::MakeTinyLlama({.hidden = 64, .kv_heads = 4, .intermediate = 128, .vocab = 128}),
      dir.path());
  const size_t whole = LoadForTest({.dir = dir.path(), .max_rows = 8})->parts().weights.bytes;
  test::RunRanks(2, [&](comm::Communicator* communicator) {
    auto loaded = LoadForTest({.dir = dir.path(), .max_rows = 8}, communicator);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_LT(loaded->parts().weights.bytes, whole * 0.52);
    EXPECT_EQ(loaded->parts().kv_shape(4).kv_heads, 2);
  });
}

// The status of loading on each rank, if rank r reads dirs[r].
std::vector<absl::Status> LoadStatuses(const std::vector<std::string>& dirs) {
  std::vector<absl::Status> statuses(dirs.size());
  test::RunRanks(static_cast<int>(dirs.size()), [&](comm::Communicator* communicator) {
    const int rank = communicator->rank();
    statuses[rank] = LoadForTest({.dir = dirs[rank], .max_rows = 8}, communicator).status();
  });
  return statuses;
}

TEST(TensorParallelLoad, OneFailingRankFailsAll) {
  const test::TempDir good, empty;
  test::WriteTinyLlama(test::MakeTinyLlama({}), good.path());
  const auto statuses = LoadStatuses({good.path(), empty.path()});
  EXPECT_THAT(statuses[0].message(), HasSubstr("1 of 2 ranks could not load their shard"));
  EXPECT_THAT(statuses[1].message(), HasSubstr(empty.File("config.json")));
}

TEST(TensorParallelLoad, RanksWithDifferentCheckpointsAreRefused) {
  const test::TempDir one, other;
  test::WriteTinyLlama(test::MakeTinyLlama({}), one.path());
  test::WriteTinyLlama(test::MakeTinyLlama({.seed = 2}), other.path());
  const auto statuses = LoadStatuses({one.path(), other.path()});
  EXPECT_FALSE(statuses[0].ok());
  EXPECT_THAT(statuses[1].message(), HasSubstr("rank 1 finds another checkpoint here than rank 0"));
}

TEST(TensorParallelLoad, MoreRanksThanHeadsAreRefused) {
  const test::TempDir dir;
  test::WriteTinyLlama(test::MakeTinyLlama({}), dir.path());
  const auto statuses = LoadStatuses(std::vector<std::string>(5, dir.path()));
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status.message(),
                HasSubstr("tensor parallelism over 5 ranks: the model has num_attention_heads 4"));
    EXPECT_THAT(status.message(), HasSubstr("expected at most 4 ranks"));
  }
}

}  // namespace
}  // namespace coppice::model
