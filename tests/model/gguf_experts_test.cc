// A mixture of experts in a GGUF file is the model in the folder: bit for bit where the file keeps the
// values, on one rank and on two; its blocks are kept, or decoded. What contradicts the header is
// refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "kernels/block_format.h"
#include "kernels/element.h"
#include "tests/model/model_harness.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/thread_communicator.h"
#include "tests/testing/tiny_family.h"
#include "tests/testing/tiny_family_gguf.h"
#include "tests/testing/tiny_gguf.h"

namespace coppice::model {
namespace {

using test::GgufBuilder;

std::vector<float> Logits(const LoadOptions& options, int ranks = 1) {
  std::vector<float> logits;
  test::RunRanks(ranks, [&](comm::Communicator* communicator) {
    auto loaded = LoadForTest(options, communicator);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    if (!loaded.ok()) return;
    PlanSketch sketch(32);
    sketch.Prefix({3, 17, 4, 90, 41, 5, 6}, 0, 7, /*logits=*/7);
    const std::vector<float> found = *loaded->Run(sketch.plan);
    if (communicator->rank() == 0) logits = found;
  });
  EXPECT_FALSE(logits.empty());
  return logits;
}

class GgufExpertsTest : public testing::TestWithParam<std::string> {
 protected:
  std::string WriteFolder(const test::TinyLlama& tiny) {
    const std::string folder = dir_.File("folder");
    std::filesystem::create_directories(folder);
    test::WriteTinyLlama(tiny, folder);
    return folder;
  }
  std::string WriteFile(const GgufBuilder& builder) {
    dir_.Write("F.gguf", builder.Bytes());
    return dir_.File("F.gguf");
  }
  std::string Refusal(const GgufBuilder& builder) {
    const absl::Status status = LoadForTest({.dir = WriteFile(builder), .max_rows = 8}).status();
    EXPECT_FALSE(status.ok());
    return std::string(status.message()).substr(dir_.File("F.gguf").size() + 2);
  }
  // The key of the file's architecture.
  static std::string Key(const char* field) {
    return absl::StrCat(GetParam() == "mixtral" ? "llama." : "qwen3moe.", field);
  }
  test::TempDir dir_;
};

TEST_P(GgufExpertsTest, GivesTheLogitsOfTheFolder) {
  for (const char* dtype : {"F32", "BF16", "F16"}) {
    const test::TinyLlama tiny = test::MakeTinyFamily(GetParam(), {.layers = 2, .dtype = dtype});
    const std::string folder = WriteFolder(tiny), file = WriteFile(test::GgufOfFamily(tiny));
    for (const int ranks : {1, 2}) {
      EXPECT_EQ(Logits({.dir = file, .max_rows = 8}, ranks),
                Logits({.dir = folder, .max_rows = 8}, ranks))
          << dtype << ", " << ranks << " ranks";
    }
  }
}

// Old files have a tensor for each expert.
TEST_P(GgufExpertsTest, ReadsATensorForEachExpert) {
  const test::TinyLlama tiny = test::MakeTinyFamily(GetParam(), {.layers = 2});
  GgufBuilder file = test::GgufOfFamily(tiny);
  for (const auto& [stack, experts] : test::ExpertMatrices(tiny)) {
    file.RemoveTensor(stack);
    for (size_t e = 0; e < experts.size(); ++e) {
      const std::string name = absl::StrReplaceAll(stack, {{"_exps", absl::StrCat(".", e)}});
      test::AddStored(name, tiny.tensors.at(experts[e]), &file);
    }
  }
  EXPECT_EQ(Logits({.dir = WriteFile(file), .max_rows = 8}),
            Logits({.dir = WriteFolder(tiny), .max_rows = 8}));
}

// The experts' gate and up in blocks; down has columns that no block fits, in F32.
TEST_P(GgufExpertsTest, BlocksStayAsTheyAreOrAreTheirValues) {
  test::TinyLlama tiny = test::MakeTinyFamily(GetParam(), {.layers = 2});
  GgufBuilder file = test::GgufOfFamily(tiny);
  std::mt19937 random(7);
  for (const auto& [stack, experts] : test::ExpertMatrices(tiny)) {
    if (stack.find("ffn_down") != std::string::npos) continue;
    std::string bytes;
    std::vector<int64_t> shape = tiny.tensors[experts[0]].shape;
    for (const std::string& expert : experts)
      bytes += test::RandomBlocks(shape[0] * shape[1], &random, &tiny.tensors[expert].values);
    shape.insert(shape.begin(), static_cast<int64_t>(experts.size()));
    file.Tensor(stack, shape, /*type=*/8, bytes);
  }
  const std::string folder = WriteFolder(tiny), path = WriteFile(file);
  for (const int ranks : {1, 2}) {
    EXPECT_EQ(Logits({.dir = path, .dtype = "f32", .max_rows = 8}, ranks),
              Logits({.dir = folder, .max_rows = 8}, ranks));
  }
  auto kept = LoadForTest({.dir = path, .max_rows = 8});
  auto plain = LoadForTest({.dir = path, .dtype = "f32", .max_rows = 8});
  ASSERT_TRUE(kept.ok() && plain.ok()) << kept.status() << plain.status();
  const auto& layer = kept->parts().weights.layers[1];
  for (const auto& expert : layer.expert_gate_up) EXPECT_EQ(expert->dtype, kernels::DType::kQ8_0);
  EXPECT_LT(kept->parts().weights.bytes, plain->parts().weights.bytes);
  // Inputs of products with blocks are int8. A row whose best experts are about equal may take
  // another one, so the middle row counts.
  const std::vector<float> expected = Logits({.dir = folder, .max_rows = 8});
  const std::vector<float> found = Logits({.dir = path, .max_rows = 8});
  std::vector<double> errors;
  const size_t vocab = expected.size() / 7;
  for (size_t row = 0; row < 7; ++row) {
    double error = 0, norm = 0;
    for (size_t i = row * vocab; i < (row + 1) * vocab; ++i) {
      error += std::pow(expected[i] - found[i], 2);
      norm += std::pow(expected[i], 2);
    }
    errors.push_back(std::sqrt(error / norm));
  }
  std::sort(errors.begin(), errors.end());
  EXPECT_LT(errors[3], 0.03);
}

TEST_P(GgufExpertsTest, NamesWhatContradictsTheHeader) {
  const test::TinyLlama tiny = test::MakeTinyFamily(GetParam(), {.layers = 2});
  const bool mixtral = GetParam() == "mixtral";
  const std::string count = mixtral ? "5" : "6", size = mixtral ? "48" : "24";
  const auto file = [&] { return test::GgufOfFamily(tiny); };
  EXPECT_EQ(Refusal(file().RemoveTensor("blk.1.ffn_up_exps.weight")),
            absl::StrCat("tensor blk.1.ffn_up_exps.weight: missing, expected a tensor of shape [",
                         count, ", ", size, ", 32]"));
  EXPECT_EQ(Refusal(file().U32(Key("expert_count"), 4)),
            absl::StrCat("tensor blk.0.ffn_gate_inp.weight: shape [", count,
                         ", 32], expected [4, 32] by the metadata"));
  const std::vector<float> router(4 * 32);
  GgufBuilder fewer = file();
  fewer.U32(Key("expert_count"), 4);
  for (const char* layer : {"0", "1"})
    fewer.F32Tensor(absl::StrCat("blk.", layer, ".ffn_gate_inp.weight"), {4, 32}, router);
  EXPECT_EQ(Refusal(fewer),
            absl::StrCat("tensor blk.0.ffn_gate_exps.weight: shape [", count, ", ", size,
                         ", 32], expected [4, ", size, ", 32] by the metadata"));
  EXPECT_EQ(Refusal(file().F32Tensor("blk.1.attn_q.bias", {32}, std::vector<float>(32))),
            "tensor blk.1.attn_q.bias: not served in a mixture of experts");
}

INSTANTIATE_TEST_SUITE_P(Tiny, GgufExpertsTest, testing::Values("mixtral", "qwen3_moe"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace coppice::model
