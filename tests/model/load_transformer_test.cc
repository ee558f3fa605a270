// What loading a folder reports and refuses. For several ranks see tensor_parallel_test.cc.
#include "model/load_transformer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "base/stop_signal.h"
#include "model/memory_traffic.h"
#include "tests/model/model_harness.h"
#include "tests/model/reference_model.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/thread_communicator.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

TEST(LoadTransformer, TiedHeadIsHeldOnce) {
  const test::TempDir dir;
  const auto bytes = [&](bool tied) {
    test::WriteTinyLlama(test::MakeTinyLlama({.tied = tied}), dir.path());
    return LoadForTest({.dir = dir.path(), .max_rows = 8})->parts().weights.bytes;
  };
  EXPECT_EQ(bytes(false) - bytes(true), size_t{96 * 32 * 4});
}

TEST(LoadTransformer, ProgressRisesToOne) {
  const test::TempDir dir;
  test::WriteTinyLlama(test::MakeTinyLlama({}), dir.path());
  std::vector<double> seen;
  LoadOptions options{.dir = dir.path(), .max_rows = 8};
  options.progress = [&](double fraction) { seen.push_back(fraction); };
  ASSERT_TRUE(LoadForTest(options).ok());
  ASSERT_FALSE(seen.empty());
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_GT(seen.front(), 0);
  EXPECT_EQ(seen.back(), 1);
}

// In a process of its own, since a stop cannot be taken back.
TEST(LoadTransformer, AStopEndsTheLoading) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const test::TempDir dir;
  test::WriteTinyLlama(test::MakeTinyLlama({}), dir.path());
  const auto stopped = [&] {
    InstallStopSignals();
    LoadOptions options{.dir = dir.path(), .max_rows = 8};
    int matrices = 0;
    options.progress = [&](double) {
      if (++matrices == 2) std::raise(SIGTERM);
    };
    const absl::Status status = LoadForTest(options).status();
    std::_Exit(status.code() == absl::StatusCode::kCancelled && matrices == 2 ? 0 : 1);
  };
  EXPECT_EXIT(stopped(), testing::ExitedWithCode(0), "");
}

TEST(LoadTransformer, FingerprintTellsCheckpointsApart) {
  const test::TempDir dir;
  const auto fingerprint = [&](const test::TinyLlama& tiny) {
    test::WriteTinyLlama(tiny, dir.path());
    return LoadForTest({.dir = dir.path(), .max_rows = 8})->parts().fingerprint;
  };
  const test::TinyLlama tiny = test::MakeTinyLlama({});
  const uint64_t first = fingerprint(tiny);
  EXPECT_EQ(fingerprint(tiny), first);
  EXPECT_NE(fingerprint(test::MakeTinyLlama({.seed = 2})), first);
  test::TinyLlama other_config = tiny;
  test::SetConfig(&other_config, "rope_theta", "500000.0");
  EXPECT_NE(fingerprint(other_config), first);

  test::WriteTinyLlama(tiny, dir.path());
  const auto quantised = [&](const char* dtype) {
    return LoadForTest({.dir = dir.path(), .weight_dtype = dtype, .max_rows = 8})
        ->parts()
        .fingerprint;
  };
  EXPECT_NE(quantised("int8"), first);
  EXPECT_NE(quantised("int4"), first);
  EXPECT_NE(quantised("int8"), quantised("int4"));
}

// int8 is for matrices; KV keeps the type of the checkpoint. The logits are near those of the
// checkpoint and not the same.
TEST(LoadTransformer, KeepsMatricesAsInt8) {
  const test::TempDir dir;
  const test::TinyLlama tiny = test::MakeTinyLlama({.vocab = 96, .dtype = "BF16"});
  test::WriteTinyLlama(tiny, dir.path());
  auto loaded = LoadForTest({.dir = dir.path(), .weight_dtype = "int8", .max_rows = 8});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->parts().weight_dtype, kernels::DType::kQ8_0);
  EXPECT_EQ(loaded->parts().weights.layers[0].qkv->dtype, kernels::DType::kQ8_0);
  EXPECT_EQ(loaded->parts().kv_shape(2).dtype, kernels::DType::kBF16);
  const std::vector<TokenId> tokens = {5, 17, 90, 3};
  const auto logits = loaded->Run(PlanSketch(64).Prefix(tokens, 0, 4, 1).plan);
  const double error = RelativeError(*logits, ReferenceLogits(tiny, tokens).back());
  EXPECT_GT(error, 1e-4);
  EXPECT_LT(error, 0.05);
}

// Embedding, head and QKV are worth 8 bits.
TEST(LoadTransformer, KeepsMatricesOfLayersAsInt4) {
  const test::TempDir dir;
  const test::TinyLlama tiny = test::MakeTinyLlama({.vocab = 96, .dtype = "BF16", .tied = false});
  test::WriteTinyLlama(tiny, dir.path());
  auto loaded = LoadForTest({.dir = dir.path(), .weight_dtype = "int4", .max_rows = 8});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const TransformerWeights& weights = loaded->parts().weights;
  EXPECT_EQ(loaded->parts().weight_dtype, kernels::DType::kQ4_0);
  EXPECT_EQ(weights.embedding->dtype, kernels::DType::kQ8_0);
  EXPECT_EQ(weights.head().dtype, kernels::DType::kQ8_0);
  for (const LayerWeights& layer : weights.layers) {
    EXPECT_EQ(layer.qkv->dtype, kernels::DType::kQ8_0);
    for (const kernels::Weight* matrix :
         {layer.output.get(), layer.gate_up.get(), layer.down.get()})
      EXPECT_EQ(matrix->dtype, kernels::DType::kQ4_0);
  }
  const std::vector<TokenId> tokens = {5, 17, 90, 3};
  const auto logits = loaded->Run(PlanSketch(64).Prefix(tokens, 0, 4, 1).plan);
  const double error = RelativeError(*logits, ReferenceLogits(tiny, tokens).back());
  EXPECT_GT(error, 1e-3);
  EXPECT_LT(error, 0.5);
}

TEST(LoadTransformer, RefusesUnknownWeightTypes) {
  const test::TempDir dir;
  test::WriteTinyLlama(test::MakeTinyLlama({}), dir.path());
  EXPECT_EQ(LoadForTest({.dir = dir.path(), .weight_dtype = "int3"}).status().message(),
            "weight_dtype: int3, expected auto, int8 or int4");
}

TEST(LoadTransformer, RefusesUnknownDTypeAndEmptyBatchLimit) {
  const test::TempDir dir;
  test::WriteTinyLlama(test::MakeTinyLlama({}), dir.path());
  EXPECT_EQ(LoadForTest({.dir = dir.path(), .dtype = "int8"}).status().message(),
            "dtype: int8, expected auto, f32, bf16 or f16");
  EXPECT_EQ(LoadForTest({.dir = dir.path(), .max_rows = 0}).status().message(),
            "max_rows: 0, expected at least 1");
}

// The CPU backend has no f16: it says so, and auto keeps such a checkpoint in f32.
TEST(LoadTransformer, F16OnTheCpuIsRefusedOrBecomesF32) {
  const test::TempDir dir;
  test::WriteTinyLlama(test::MakeTinyLlama({.dtype = "F16"}), dir.path());
  EXPECT_EQ(LoadForTest({.dir = dir.path(), .dtype = "f16", .max_rows = 8}).status().message(),
            "dtype: f16, but the cpu backend keeps weights and KV as f32 or bf16 (auto: F16 "
            "becomes f32)");
  EXPECT_EQ(LoadForTest({.dir = dir.path(), .max_rows = 8})->parts().dtype, kernels::DType::kF32);
}

TEST(LoadTransformer, TellsShapesOfItsKvCache) {
  const test::TempDir dir;
  test::WriteTinyLlama(test::MakeTinyLlama({.dtype = "BF16"}), dir.path());
  auto loaded = LoadForTest({.dir = dir.path(), .max_rows = 8});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->parts().dtype, kernels::DType::kBF16);
  const kernels::KvPoolShape shape = loaded->parts().kv_shape(7);
  EXPECT_EQ(shape.layers, 2);
  EXPECT_EQ(shape.kv_heads, 2);
  EXPECT_EQ(shape.head_dim, 8);
  EXPECT_EQ(shape.blocks, 7);
  EXPECT_EQ(shape.dtype, kernels::DType::kBF16);
  EXPECT_EQ(loaded->parts().kv_block_bytes(), size_t{2 * 2 * 2 * 8 * 16 * 2});
}

// Two layers of two KV heads of 8: K and V are eight codes and a scale.
TEST(LoadTransformer, KeepsKvInEightBits) {
  const test::TempDir dir;
  const test::TinyLlama tiny = test::MakeTinyLlama({.vocab = 96});
  test::WriteTinyLlama(tiny, dir.path());
  auto exact = LoadForTest({.dir = dir.path(), .max_rows = 8});
  auto loaded = LoadForTest({.dir = dir.path(), .kv_dtype = "int8", .max_rows = 8});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->parts().kv_dtype, kernels::DType::kI8);
  EXPECT_EQ(loaded->parts().dtype, kernels::DType::kF32);
  EXPECT_EQ(loaded->parts().kv_shape(7).dtype, kernels::DType::kI8);
  EXPECT_EQ(loaded->parts().kv_block_bytes(), size_t{2 * 2 * 2 * (8 + 4) * 16});
  EXPECT_EQ(loaded->pool->bytes, kTestBlocks * loaded->parts().kv_block_bytes());
  EXPECT_EQ(SizesOf(loaded->parts()).kv_token, 2u * 2 * (8 + 4));
  EXPECT_EQ(SizesOf(exact->parts()).kv_token, 2u * 2 * 8 * 4);
  EXPECT_EQ(
      EstimateLoad({.dir = dir.path(), .kv_dtype = "int8"}, *loaded->backend, 1)->kv_token_bytes,
      2 * 2 * 2 * (8 + 4));
  // K and V are rounded, so the logits move, but not far.
  const std::vector<TokenId> tokens = {5, 17, 90, 3, 42, 8};
  const auto logits = loaded->Run(PlanSketch(64).Prefix(tokens, 0, 6, 1).plan);
  const double error = RelativeError(*logits, ReferenceLogits(tiny, tokens).back());
  EXPECT_GT(error, 1e-5);
  EXPECT_LT(error, 0.02);
}

TEST(LoadTransformer, RefusesUnknownKvTypesAndRanksThatDiffer) {
  const test::TempDir dir;
  test::WriteTinyLlama(test::MakeTinyLlama({}), dir.path());
  EXPECT_EQ(LoadForTest({.dir = dir.path(), .kv_dtype = "int4"}).status().message(),
            "kv_dtype: int4, expected auto or int8");
  test::RunRanks(2, [&](comm::Communicator* communicator) {
    LoadOptions options = {.dir = dir.path(), .max_rows = 8};
    if (communicator->rank() == 1) options.kv_dtype = "int8";
    const absl::Status status = LoadForTest(options, communicator).status();
    EXPECT_FALSE(status.ok());
    if (communicator->rank() == 1) {
      EXPECT_EQ(status.message(),
                "kv_dtype: int8 on rank 1, auto on rank 0; all ranks of a replica keep KV in one "
                "type");
    }
  });
}

}  // namespace
}  // namespace coppice::model
