#include "model/model_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/load_transformer.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/thread_communicator.h"
#include "tests/testing/tiny_eagle3.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

using kernels::DType;
using kernels::MemoryFacts;
using testing::HasSubstr;

// Llama-3.1-8B: 8,030,261,248 parameters, all of them but the gains in matrices.
ModelConfig Llama8B() {
  ModelConfig config;
  config.hidden_size = 4096;
  config.num_layers = 32;
  config.num_heads = 32;
  config.num_kv_heads = 8;
  config.head_dim = 128;
  config.intermediate_size = 14336;
  config.vocab_size = 128256;
  config.embedding_size = 4096;
  config.ropes = {{131072, std::vector<double>(64)}};
  config.layers.assign(32, LayerParts());
  return config;
}

TEST(ModelMemory, OfAKnownModel) {
  const ModelConfig config = Llama8B();
  const ShardPlan plan = MakeShardPlan(config, 0, 1).value();
  const ModelMemory memory = PredictMemory(config, plan, DType::kBF16, DType::kBF16, 512, 1);
  constexpr int64_t kParameters = 8030261248, kGains = 65 * 4096;
  EXPECT_EQ(memory.weights, (kParameters - kGains) * 2 + kGains * 4);
  // x, normed, qkv, attended, gate and up, their product, logits.
  constexpr int64_t kRow = 4 * 4096 + 2 * (4096 + 6144 + 4096 + 28672 + 14336) + 4 * 128256;
  EXPECT_EQ(memory.activations, 512 * kRow + 131072 * 128 * 4);
}

// Beside those of the model without experts: scores, and for each chosen expert of a row gate, up,
// their product, the output, and what says whose it is.
TEST(ModelMemory, OfActivationsOfExperts) {
  ModelConfig config = Llama8B();
  const int64_t before =
      PredictMemory(config, MakeShardPlan(config, 0, 1).value(), DType::kBF16, DType::kBF16, 512, 1)
          .activations;
  config.experts = {/*count=*/64, /*size=*/768, /*chosen=*/8, /*normalised=*/true};
  const int64_t with =
      PredictMemory(config, MakeShardPlan(config, 0, 1).value(), DType::kBF16, DType::kBF16, 512, 1)
          .activations;
  constexpr int64_t kApart = 4 * 4096;  // what the MLP adds
  EXPECT_EQ(with - before, 512 * (kApart + 64 * 4 + 8 * (2 * 3 * 768 + 4 * 4096 + 4 * 4)));
}

// What a rank really packs, biases and shares of several ranks included.
TEST(ModelMemory, OfWhatIsLoaded) {
  for (const int ranks : {1, 2}) {
    test::TempDir dir;
    test::TinyLlamaOptions tiny;
    tiny.attention_bias = tiny.mlp_bias = true;
    tiny.vocab = 256;
    tiny.intermediate = 64;
    tiny.tied = ranks == 2;
    test::WriteTinyLlama(test::MakeTinyLlama(tiny), dir.path());
    test::RunRanks(ranks, [&](comm::Communicator* communicator) {
      ThreadTeam team(1);
      const auto backend = kernels::MakeBackend({"cpu", &team, communicator}).value();
      LoadOptions options;
      options.dir = dir.path();
      const auto parts = LoadTransformer(options, backend.get(), communicator);
      ASSERT_TRUE(parts.ok()) << parts.status();
      int64_t values = 0;
      const auto count = [&](const kernels::Weight& weight, int64_t biases) {
        values += weight.rows * weight.columns + biases;
      };
      count(*parts->weights.embedding, 0);
      if (parts->weights.own_head != nullptr) count(*parts->weights.own_head, 0);
      count(*parts->weights.final_norm, 0);
      const bool first = communicator->rank() == 0;
      for (const LayerWeights& layer : parts->weights.layers) {
        count(*layer.attention_norm, 0);
        count(*layer.qkv, layer.qkv->rows);
        count(*layer.output, first ? layer.output->rows : 0);
        count(*layer.mlp_norm, 0);
        count(*layer.gate_up, layer.gate_up->rows);
        count(*layer.down, first ? layer.down->rows : 0);
      }
      const ModelMemory memory =
          PredictMemory(parts->config, parts->plan, DType::kF32, DType::kF32, 8, ranks);
      // Biases that only the first rank keeps are counted on each.
      const int64_t not_kept = first ? 0 : 2 * int64_t{tiny.layers} * tiny.hidden;
      EXPECT_EQ(memory.weights, 4 * (values + not_kept));
    });
  }
}

// An EAGLE-3 head, with the embedding that it takes of its target, and what its rows have beside those
// of a Llama: embedding and state apart, then both normed.
TEST(ModelMemory, OfAHead) {
  test::TempDir dir, target_dir;
  const test::TinyLlama target = test::MakeTinyLlama({.layers = 4, .vocab = 256});
  test::WriteTinyLlama(target, target_dir.path());
  test::WriteTinyLlama(test::MakeTinyEagle3(target, {.intermediate = 64}), dir.path());
  const auto single = comm::MakeSingleCommunicator();
  ThreadTeam team(1);
  const auto backend = kernels::MakeBackend({"cpu", &team, single.get()}).value();
  const LoadOptions options = {.dir = dir.path(), .target = target_dir.path()};
  const auto parts = LoadTransformer(options, backend.get(), single.get());
  ASSERT_TRUE(parts.ok()) << parts.status();
  const LayerWeights& layer = parts->weights.layers[0];
  int64_t values = 0;
  for (const auto* weight : {parts->weights.embedding.get(), parts->weights.own_head.get(),
                             parts->weights.final_norm.get(), layer.attention_norm.get(),
                             layer.state_norm.get(), layer.qkv.get(), layer.output.get(),
                             layer.mlp_norm.get(), layer.gate_up.get(), layer.down.get()}) {
    values += weight->rows * weight->columns;
  }
  const ModelMemory memory = PredictMemory(parts->config, parts->plan, DType::kF32, DType::kF32,
                                           /*max_rows=*/8, /*ranks=*/1);
  EXPECT_EQ(memory.weights, 4 * values);
  // x, embedding, normed, both normed, qkv, attended, gate and up, their product, logits; the table.
  constexpr int64_t kRow = 32 + 32 + 32 + 2 * 32 + 64 + 32 + 2 * 64 + 64 + 256;
  EXPECT_EQ(memory.activations, 8 * kRow * 4 + 256 * 8 * 4);
}

// Groups of 32 inputs have a scale each, f16.
TEST(ModelMemory, OfInt8Weights) {
  const ModelConfig config = Llama8B();
  const ShardPlan plan = MakeShardPlan(config, 0, 1).value();
  const ModelMemory memory = PredictMemory(config, plan, DType::kQ8_0, DType::kF32, 512, 1);
  constexpr int64_t kMatrices = 8030261248 - 65 * 4096;
  EXPECT_EQ(memory.weights, kMatrices + kMatrices / 16 + 65 * 4096 * 4);
}

// Embedding, head and QKV are int8.
TEST(ModelMemory, OfInt4Weights) {
  const ModelConfig config = Llama8B();
  const ShardPlan plan = MakeShardPlan(config, 0, 1).value();
  const ModelMemory memory = PredictMemory(config, plan, DType::kQ4_0, DType::kF32, 512, 1);
  constexpr int64_t kFine = int64_t{2} * 128256 * 4096 + int64_t{32} * 6144 * 4096;
  constexpr int64_t kOthers = 8030261248 - 65 * 4096 - kFine;
  EXPECT_EQ(memory.weights, kOthers * 9 / 16 + kFine + kFine / 16 + 65 * 4096 * 4);
}

// 144 bytes of a block of 256, and 4 more for its scales taken apart; Q8_0 has 34 bytes for 32.
TEST(ModelMemory, OfWeightsInBlocks) {
  const ModelConfig config = Llama8B();
  const ShardPlan plan = MakeShardPlan(config, 0, 1).value();
  constexpr int64_t kMatrices = 8030261248 - 65 * 4096;
  EXPECT_EQ(PredictMemory(config, plan, DType::kQ4_K, DType::kF32, 512, 1).weights,
            kMatrices / 256 * 148 + 65 * 4096 * 4);
  EXPECT_EQ(PredictMemory(config, plan, DType::kQ8_0, DType::kF32, 512, 1).weights,
            kMatrices / 32 * 34 + 65 * 4096 * 4);
}

TEST(ModelMemory, WhatDoesNotFitIsRefusedWithFigures) {
  const ModelMemory model{16'000'000'000, 400'000'000};
  const MemoryFacts device{24'000'000'000, 25'000'000'000, true};
  EXPECT_TRUE(CheckFits("m", model, 7'600'000'000, DType::kBF16, device).ok());
  const absl::Status status = CheckFits("models/8b", model, 7'600'000'001, DType::kBF16, device);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  for (const char* words :
       {"models/8b does not fit", "it needs 24.00 GB", "weights in BF16 16.00 GB",
        "activations 0.40 GB", "KV pool 7.60 GB", "the device has 24.00 GB free of 25.00 GB"})
    EXPECT_THAT(status.message(), HasSubstr(words));
  EXPECT_THAT(CheckFits("m", model, 0, DType::kF32, {1, 2, false}).message(),
              HasSubstr("this host has"));
  EXPECT_TRUE(CheckFits("m", model, 0, DType::kF32, MemoryFacts()).ok()) << "nothing is known";
}

// Whoever comes first leaves to the other what is not its own.
TEST(ModelMemory, AShareOfADevice) {
  const ModelMemory model{2000, 400};
  const MemoryFacts others{9000, 10000, true};
  const auto pool = [&](const MemoryFacts& memory) { return DefaultKvBytes(model, memory); };
  EXPECT_EQ(pool(ShareOf(others, 0.75, 2000)), 7500 - 2000 - 400 - 750);
  EXPECT_EQ(pool(ShareOf({3000, 10000, true}, 0.75, 2000)), 3000 - 400 - 750) << "others took more";
  EXPECT_EQ(pool(ShareOf(others, 0.25, 2600)), 0);
  EXPECT_EQ(pool(ShareOf(others, 1, 2000)), pool(others));
  EXPECT_TRUE(CheckFits("m", model, 100, DType::kBF16, ShareOf(others, 0.25, 0)).ok());
  EXPECT_THAT(CheckFits("m", model, 101, DType::kBF16, ShareOf(others, 0.25, 0)).message(),
              HasSubstr("m does not fit"));
  EXPECT_EQ(ShareOf({50, 100, false}, 0.25, 0).free, 50) << "of a host";
}

TEST(ModelMemory, TheKvPoolTakesWhatIsLeftOfADevice) {
  const ModelMemory model{0, 400};
  EXPECT_EQ(DefaultKvBytes(model, {9000, 10000, true}), 9000 - 400 - 1000);
  EXPECT_EQ(DefaultKvBytes(model, {1000, 10000, true}), 0);
  EXPECT_EQ(DefaultKvBytes(model, {int64_t{1} << 40, int64_t{1} << 41, false}), int64_t{1} << 30);
}

}  // namespace
}  // namespace coppice::model
