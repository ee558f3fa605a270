// A head of fewer ids than the vocabulary has: the logits of these are those of the whole head, bit
// for bit, and the others are -infinity. Folders that are refused: checkpoint_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "model/memory_traffic.h"
#include "model/model_memory.h"
#include "tests/model/last_logits.h"
#include "tests/model/model_harness.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/thread_communicator.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

using testing::HasSubstr;

constexpr int kVocab = 96;

struct Case {
  const char* name;
  std::vector<int> ids;
  test::TinyLlamaOptions options = {};
  int ranks = 1;
  const char* weight_dtype = "auto";
};

class DraftVocabulary : public testing::TestWithParam<Case> {
 protected:
  // The rows include ids without a row of the head.
  static std::vector<float> Logits(const test::TinyLlama& model) {
    return LastLogits(model, GetParam().ranks, "auto", GetParam().weight_dtype);
  }
};

TEST_P(DraftVocabulary, KeepsTheLogitsOfItsIds) {
  test::TinyLlama model = test::MakeTinyLlama(GetParam().options);
  std::vector<float> expected = Logits(model);
  ASSERT_EQ(expected.size(), size_t{3 * kVocab});
  std::vector<bool> kept(kVocab);
  for (const int id : GetParam().ids) kept[id] = true;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!kept[i % kVocab]) expected[i] = -std::numeric_limits<float>::infinity();
  }
  test::ReduceHead(&model, GetParam().ids);
  EXPECT_EQ(Logits(model), expected);
}

std::vector<int> EveryThird() {
  std::vector<int> ids;
  for (int id = 1; id < kVocab; id += 3) ids.push_back(id);
  return ids;
}

const std::vector<int> kEdges = {0, 1, 47, 48, 60, 94, 95};

INSTANTIATE_TEST_SUITE_P(
    Heads, DraftVocabulary,
    testing::Values(Case{"EveryThird", EveryThird()}, Case{"Edges", kEdges}, Case{"One", {33}},
                    Case{"AllButOne",
                         [] {
                           std::vector<int> ids;
                           for (int id = 0; id < kVocab; ++id) {
                             if (id != 50) ids.push_back(id);
                           }
                           return ids;
                         }()},
                    Case{"OfATiedHead", kEdges, {.tied = true}},
                    Case{"BF16", kEdges, {.dtype = "BF16"}},
                    Case{"Int8", EveryThird(), {.dtype = "BF16"}, 1, "int8"},
                    Case{"Int4", EveryThird(), {.dtype = "BF16", .tied = true}, 1, "int4"},
                    Case{"Shards", EveryThird(), {.shards = 3}}, Case{"TwoRanks", kEdges, {}, 2},
                    Case{"ThreeRanksOfATiedHead", EveryThird(), {.tied = true}, 3},
                    Case{"UnequalRanks", {0, 1, 2, 3, 4, 5, 6, 7, 8, 90}, {}, 2}),
    [](const auto& info) { return info.param.name; });

TEST(DraftVocabularyFolder, TwoRanksReadAndHoldTheirOwnIds) {
  const test::TempDir dir;
  test::TinyLlama model = test::MakeTinyLlama({});
  test::WriteTinyLlama(model, dir.path());
  const auto whole = LoadForTest({.dir = dir.path(), .max_rows = 8});
  ASSERT_TRUE(whole.ok()) << whole.status();
  test::ReduceHead(&model, {2, 3, 5, 7, 60});
  test::WriteTinyLlama(model, dir.path());
  test::RunRanks(2, [&](comm::Communicator* communicator) {
    const auto loaded = LoadForTest({.dir = dir.path(), .max_rows = 8}, communicator);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const TransformerWeights& weights = loaded->parts().weights;
    const int64_t rows = communicator->rank() == 0 ? 4 : 1;
    EXPECT_EQ(weights.own_head->rows, rows);
    EXPECT_EQ(weights.embedding->rows, kVocab / 2);
    EXPECT_EQ(SizesOf(loaded->parts()).head,
              weights.final_norm->bytes + weights.own_head->bytes + rows * sizeof(int32_t));
  });
}

TEST(DraftVocabularyFolder, TakesTheMemoryThatWasPredicted) {
  const test::TempDir dir;
  test::TinyLlama model = test::MakeTinyLlama({});
  const auto load = [&] {
    test::WriteTinyLlama(model, dir.path());
    return LoadForTest({.dir = dir.path(), .max_rows = 8}).value();
  };
  const auto predict = [](const TransformerParts& parts) {
    return PredictMemory(parts.config, parts.plan, kernels::DType::kF32, kernels::DType::kF32, 8,
                         1);
  };
  const LoadedModel whole = load();
  test::ReduceHead(&model, {2, 3, 5, 7, 60});
  const LoadedModel reduced = load();
  const ModelMemory before = predict(whole.parts()), after = predict(reduced.parts());
  constexpr int64_t kSpread = kVocab * 4;  // of a device; a host has less
  EXPECT_EQ(before.weights - after.weights, (kVocab - 5) * 32 * 4 - kSpread);
  EXPECT_EQ(after.activations - before.activations, 8 * 5 * 4);
  EXPECT_LT(reduced.parts().weights.bytes, whole.parts().weights.bytes);
}

TEST(DraftVocabularyFolder, AHeadOfAllIdsNeedsNoList) {
  const test::TempDir dir;
  test::TinyLlama model = test::MakeTinyLlama({});
  test::SetConfig(&model, "draft_vocab_size", "96");
  test::WriteTinyLlama(model, dir.path());
  const auto loaded = LoadForTest({.dir = dir.path(), .max_rows = 8});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->parts().weights.scatter, nullptr);
}

TEST(DraftVocabularyFolder, ARankWithoutIdsIsRefused) {
  const test::TempDir dir;
  test::TinyLlama model = test::MakeTinyLlama({});
  test::ReduceHead(&model, {2, 3, 5, 7});
  test::WriteTinyLlama(model, dir.path());
  std::vector<absl::Status> statuses(2);
  test::RunRanks(2, [&](comm::Communicator* communicator) {
    statuses[communicator->rank()] =
        LoadForTest({.dir = dir.path(), .max_rows = 8}, communicator).status();
  });
  EXPECT_THAT(statuses[0].message(), HasSubstr("1 of 2 ranks could not load their shard"));
  EXPECT_EQ(statuses[1].message(),
            dir.File("model.safetensors") +
                ": d2t: no row is an id of rank 1, 48 to 95, expected one of each rank");
}

}  // namespace
}  // namespace coppice::model
