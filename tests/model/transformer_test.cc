// The forward pass against the naive double-precision reference, over every kind of folder that is
// served.
#include "model/transformer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "tests/model/model_harness.h"
#include "tests/model/reference_llama.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_llama.h"

namespace coppice {
namespace {

constexpr char kLlama3[] = R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 32})";

std::vector<TokenId> SomeTokens(int count, int vocab) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(Finalize(i + 17) % vocab));
  return tokens;
}

struct Case {
  const char* name;
  TinyLlamaOptions options;
  std::string dtype = "auto";
  double tolerance = 1e-5;  // relative to the largest logit
};

class TransformerCase : public testing::TestWithParam<Case> {};

TEST_P(TransformerCase, LogitsAreThoseOfTheReference) {
  const TempDir dir;
  const TinyLlama tiny = MakeTinyLlama(GetParam().options);
  WriteTinyLlama(tiny, dir.path());
  auto loaded = LoadForTest({.dir = dir.path(), .dtype = GetParam().dtype, .max_rows = 64});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const std::vector<TokenId> tokens = SomeTokens(50, tiny.options.vocab);
  const auto expected = ReferenceLogits(tiny, tokens);
  // In two chunks, so that the second reads what the first has stored.
  for (const auto& [begin, end] : {std::pair(0, 37), std::pair(37, 50)}) {
    const auto logits = loaded->Run(BatchSketch(64).Prefix(tokens, begin, end, end - begin).batch);
    ASSERT_TRUE(logits.ok()) << logits.status();
    std::vector<double> rows;
    for (int t = begin; t < end; ++t)
      rows.insert(rows.end(), expected[t].begin(), expected[t].end());
    const double error = RelativeError(*logits, rows);
    EXPECT_LT(error, GetParam().tolerance) << "tokens " << begin << " to " << end;
    RecordProperty(std::to_string(begin), std::to_string(error));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Folders, TransformerCase,
    testing::Values(
        Case{"Plain", {}}, Case{"Tied", {.tied = true}}, Case{"MultiHead", {.kv_heads = 4}},
        Case{"OneKvHead", {.kv_heads = 1}}, Case{"ExplicitHeadDim", {.head_dim = 16}},
        Case{"OddSizes",
             {.hidden = 40, .heads = 5, .kv_heads = 5, .intermediate = 37, .vocab = 61}},
        Case{"Sharded", {.shards = 3}},
        Case{"Llama3Rope", {.head_dim = 32, .rope_scaling = kLlama3}},
        Case{"LinearRope", {.rope_scaling = R"({"rope_type": "linear", "factor": 4.0})"}},
        Case{"AttentionAndMlpBias", {.attention_bias = true, .mlp_bias = true}},
        Case{"Qwen2", {.architecture = "Qwen2ForCausalLM"}},
        Case{"Mistral", {.architecture = "MistralForCausalLM"}},
        // f16 is kept as f32, so it is exact; so is bf16 when asked for f32.
        Case{"F16", {.dtype = "F16"}}, Case{"BF16KeptAsF32", {.dtype = "BF16"}, "f32"},
        // bf16 weights, KV and multiplicands: 8 bits of significand.
        Case{"BF16", {.dtype = "BF16", .shards = 2}, "auto", 4e-2},
        Case{"F32KeptAsBF16", {.tied = true}, "bf16", 4e-2}),
    [](const auto& info) { return info.param.name; });

TEST(Transformer, TiedHeadIsHeldOnce) {
  const TempDir dir;
  const auto bytes = [&](bool tied) {
    WriteTinyLlama(MakeTinyLlama({.tied = tied}), dir.path());
    return LoadForTest({.dir = dir.path(), .max_rows = 8})->model->weight_bytes();
  };
  EXPECT_EQ(bytes(false) - bytes(true), size_t{96 * 32 * 4});
}

TEST(Transformer, GivesLogitsOfTheWantedRowsAlone) {
  const TempDir dir;
  const TinyLlama tiny = MakeTinyLlama({});
  WriteTinyLlama(tiny, dir.path());
  auto loaded = LoadForTest({.dir = dir.path(), .max_rows = 32});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const std::vector<TokenId> tokens = SomeTokens(20, 96);
  ForwardBatch batch = BatchSketch(32).Prefix(tokens, 0, 20, 20).batch;
  const std::vector<float> all = *loaded->Run(batch);
  batch.logits_rows = {3, 7, 19};
  const std::vector<float> some = *loaded->Run(batch);
  ASSERT_EQ(some.size(), size_t{3 * 96});
  for (int i = 0; i < 3; ++i) {
    const auto row = all.begin() + batch.logits_rows[i] * 96;
    EXPECT_TRUE(std::equal(row, row + 96, some.begin() + i * 96)) << "row " << batch.logits_rows[i];
  }
  batch.logits_rows.clear();
  EXPECT_THAT(*loaded->Run(batch), testing::IsEmpty());
}

TEST(Transformer, TellsWhenOnlyTheHeadIsLeft) {
  TempDir dir;
  WriteTinyLlama(MakeTinyLlama({}), dir.path());
  LoadOptions options;
  options.dir = dir.path();
  auto loaded = LoadForTest(options);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const std::vector<TokenId> tokens = {3, 4, 5, 6};
  int told = 0;
  const auto tell = [&] { ++told; };
  for (const int logits : {0, 1, 3}) {
    BatchSketch sketch(16);
    sketch.Prefix(tokens, 0, 4, logits);
    const auto plain = loaded->model->Forward(sketch.batch, loaded->pool.get());
    ASSERT_TRUE(plain.ok()) << plain.status();
    const std::vector<float> expected(plain->begin(), plain->end());
    told = 0;
    const auto got = loaded->model->Forward(sketch.batch, loaded->pool.get(), tell);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(told, logits > 0 ? 1 : 0);
    EXPECT_EQ(std::vector<float>(got->begin(), got->end()), expected);
  }
  BatchSketch bad(16);
  bad.Prefix({-5}, 0, 1, 1);
  told = 0;
  EXPECT_FALSE(loaded->model->Forward(bad.batch, loaded->pool.get(), tell).ok());
  EXPECT_EQ(told, 0);
}

TEST(Transformer, TellsShapesOfItsKvCache) {
  const TempDir dir;
  WriteTinyLlama(MakeTinyLlama({.dtype = "BF16"}), dir.path());
  auto loaded = LoadForTest({.dir = dir.path(), .max_rows = 8});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->model->dtype(), DType::kBF16);
  const KvPoolShape shape = loaded->model->kv_shape(7);
  EXPECT_EQ(shape.layers, 2);
  EXPECT_EQ(shape.kv_heads, 2);
  EXPECT_EQ(shape.head_dim, 8);
  EXPECT_EQ(shape.blocks, 7);
  EXPECT_EQ(shape.dtype, DType::kBF16);
  EXPECT_EQ(loaded->model->kv_block_bytes(), size_t{2 * 2 * 2 * 8 * 16 * 2});
}

TEST(Transformer, ProgressRisesToOne) {
  const TempDir dir;
  WriteTinyLlama(MakeTinyLlama({}), dir.path());
  std::vector<double> seen;
  LoadOptions options{.dir = dir.path(), .max_rows = 8};
  options.progress = [&](double fraction) { seen.push_back(fraction); };
  ASSERT_TRUE(LoadForTest(options).ok());
  ASSERT_FALSE(seen.empty());
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_GT(seen.front(), 0);
  EXPECT_EQ(seen.back(), 1);
}

TEST(Transformer, FingerprintTellsCheckpointsApart) {
  const TempDir dir;
  const auto fingerprint = [&](const TinyLlama& tiny) {
    WriteTinyLlama(tiny, dir.path());
    return LoadForTest({.dir = dir.path(), .max_rows = 8})->model->fingerprint();
  };
  const TinyLlama tiny = MakeTinyLlama({});
  const uint64_t first = fingerprint(tiny);
  EXPECT_EQ(fingerprint(tiny), first);
  EXPECT_NE(fingerprint(MakeTinyLlama({.seed = 2})), first);
  TinyLlama other_config = tiny;
  SetConfig(&other_config, "rope_theta", "500000.0");
  EXPECT_NE(fingerprint(other_config), first);
}

TEST(Transformer, RefusesUnknownDTypeAndEmptyBatchLimit) {
  const TempDir dir;
  WriteTinyLlama(MakeTinyLlama({}), dir.path());
  EXPECT_EQ(LoadForTest({.dir = dir.path(), .dtype = "int8"}).status().message(),
            "dtype: int8, expected auto, f32 or bf16");
  EXPECT_EQ(LoadForTest({.dir = dir.path(), .max_rows = 0}).status().message(),
            "max_rows: 0, expected at least 1");
}

}  // namespace
}  // namespace coppice
