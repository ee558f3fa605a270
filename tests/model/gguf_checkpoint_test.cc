// A model in a GGUF file is the model in the folder it was made of: bit for bit where the file keeps
// the values, and decoded or kept where it has blocks. Files that cannot be served are refused.
#include "model/gguf_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/block_format.h"
#include "kernels/element.h"
#include "tests/model/model_harness.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/thread_communicator.h"
#include "tests/testing/tiny_gguf.h"

namespace coppice::model {
namespace {

using test::GgufBuilder;
using testing::ElementsAre;
using testing::EndsWith;

std::vector<float> Logits(const LoadOptions& options, comm::Communicator* communicator = nullptr) {
  auto loaded = LoadForTest(options, communicator);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  if (!loaded.ok()) return {};
  PlanSketch sketch(32);
  sketch.Prefix({3, 17, 4, 90, 41, 5, 6}, 0, 7, /*logits=*/7);
  return *loaded->Run(sketch.plan);
}

class GgufCheckpointTest : public testing::Test {
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
    return std::string(status.message()).substr(dir_.File("F.gguf").size() + 2);
  }
  test::TempDir dir_;
};

TEST_F(GgufCheckpointTest, GivesTheLogitsOfTheFolder) {
  for (const test::TinyLlamaOptions& options : std::vector<test::TinyLlamaOptions>{
           {},
           {.tied = true},
           {.head_dim = 16, .dtype = "BF16"},
           {.dtype = "F16", .attention_bias = true, .mlp_bias = true},
           {.attention_bias = true, .architecture = "Qwen2ForCausalLM"}}) {
    const test::TinyLlama tiny = test::MakeTinyLlama(options);
    const std::vector<float> expected = Logits({.dir = WriteFolder(tiny), .max_rows = 8});
    EXPECT_EQ(Logits({.dir = WriteFile(test::GgufOf(tiny)), .max_rows = 8}), expected)
        << options.dtype << " " << options.tied;
  }
}

TEST_F(GgufCheckpointTest, GivesEachRankItsPart) {
  const test::TinyLlama tiny = test::MakeTinyLlama({.attention_bias = true});
  const std::string folder = WriteFolder(tiny), file = WriteFile(test::GgufOf(tiny));
  std::map<std::string, std::vector<float>> logits;
  for (const std::string& dir : {folder, file}) {
    test::RunRanks(2, [&](comm::Communicator* communicator) {
      const std::vector<float> found = Logits({.dir = dir, .max_rows = 8}, communicator);
      if (communicator->rank() == 0) logits[dir] = found;
    });
  }
  EXPECT_FALSE(logits[folder].empty());
  EXPECT_EQ(logits[file], logits[folder]);
}

// A bias that a converter left out is zero.
TEST_F(GgufCheckpointTest, ABiasThatIsLeftOutIsZero) {
  test::TinyLlama tiny = test::MakeTinyLlama({.attention_bias = true});
  GgufBuilder file = test::GgufOf(tiny);
  for (int layer = 0; layer < 2; ++layer) {
    const std::string name = absl::StrCat("model.layers.", layer, ".self_attn.o_proj.bias");
    for (float& value : tiny.tensors[name].values) value = 0;
    file.RemoveTensor(absl::StrCat("blk.", layer, ".attn_output.bias"));
  }
  EXPECT_EQ(Logits({.dir = WriteFile(file), .max_rows = 8}),
            Logits({.dir = WriteFolder(tiny), .max_rows = 8}));
}

// A model whose matrices are in blocks, as a file and as the folder with their values. The rows of
// heads move as whole blocks.
class GgufBlocksTest : public GgufCheckpointTest {
 protected:
  void SetUp() override {
    test::TinyLlama tiny = test::MakeTinyLlama({.hidden = 64, .intermediate = 96});
    GgufBuilder file = test::GgufOf(tiny);
    std::mt19937 random(7);
    for (auto& [name, tensor] : tiny.tensors) {
      if (tensor.shape.size() != 2) continue;
      std::vector<float> values;
      const std::string bytes =
          test::RandomBlocks(tensor.shape[0] * tensor.shape[1], &random, &values);
      file.Tensor(test::GgufNameOf(name), tensor.shape, /*type=*/8, bytes);
      tensor.values = values;
      if (!absl::StrContains(name, "q_proj") && !absl::StrContains(name, "k_proj")) continue;
      // InterleavedRows of the folder's rows are the file's.
      const int64_t width = tensor.shape[1];
      std::vector<float> order(tensor.shape[0]);
      for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<float>(i);
      const std::vector<float> from = test::InterleavedRows(order, 1, /*head_dim=*/16);
      for (size_t row = 0; row < from.size(); ++row) {
        std::copy_n(values.begin() + row * width, width,
                    tensor.values.begin() + static_cast<int64_t>(from[row]) * width);
      }
    }
    folder_ = WriteFolder(tiny);
    file_ = WriteFile(file);
  }
  std::string folder_, file_;
};

TEST_F(GgufBlocksTest, AskedForAsF32TheyAreTheirValues) {
  const std::vector<float> expected = Logits({.dir = folder_, .max_rows = 8});
  EXPECT_EQ(Logits({.dir = file_, .dtype = "f32", .max_rows = 8}), expected);
}

TEST_F(GgufBlocksTest, StayAsTheyAreIfNothingElseIsAsked) {
  auto kept = LoadForTest({.dir = file_, .max_rows = 8});
  auto plain = LoadForTest({.dir = file_, .dtype = "bf16", .max_rows = 8});
  ASSERT_TRUE(kept.ok() && plain.ok()) << kept.status() << plain.status();
  EXPECT_LT(kept->parts().weights.bytes, plain->parts().weights.bytes * 6 / 10);
  EXPECT_EQ(kept->parts().dtype, kernels::DType::kBF16);
  EXPECT_EQ(kept->parts().fingerprint, plain->parts().fingerprint);
  const std::vector<float> expected = Logits({.dir = folder_, .max_rows = 8});
  const std::vector<float> found = Logits({.dir = file_, .max_rows = 8});
  double error = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(expected[i] - found[i], 2);
    norm += std::pow(expected[i], 2);
  }
  EXPECT_LT(std::sqrt(error / norm), 0.03);
}

// 96 columns over two ranks: each part is 48 columns, which cut a block.
TEST_F(GgufBlocksTest, ColumnsThatCutABlockAreTheirValues) {
  std::vector<float> found;
  test::RunRanks(2, [&](comm::Communicator* communicator) {
    const auto logits = Logits({.dir = file_, .dtype = "f32", .max_rows = 8}, communicator);
    if (communicator->rank() == 0) found = logits;
  });
  std::vector<float> expected;
  test::RunRanks(2, [&](comm::Communicator* communicator) {
    const auto logits = Logits({.dir = folder_, .max_rows = 8}, communicator);
    if (communicator->rank() == 0) expected = logits;
  });
  EXPECT_EQ(found, expected);
}

TEST_F(GgufCheckpointTest, NamesWhatCannotBeServed) {
  const auto tiny = [] { return test::GgufOf(test::MakeTinyLlama({})); };
  EXPECT_EQ(Refusal(tiny().RemoveTensor("blk.1.ffn_up.weight")),
            "tensor blk.1.ffn_up.weight: missing, expected a tensor of shape [48, 32]");
  EXPECT_EQ(Refusal(tiny().U32("llama.feed_forward_length", 40)),
            "tensor blk.0.ffn_gate.weight: shape [48, 32], expected [40, 32] by the metadata");
  EXPECT_THAT(
      Refusal(tiny().Tensor("blk.1.ffn_up.weight", {1, 256}, /*type=*/16, std::string(66, 'x'))),
      testing::StartsWith("tensor blk.1.ffn_up.weight: type IQ2_XXS is not served yet (F32, F16, "
                          "BF16, Q4_0, "));
  EXPECT_EQ(Refusal(tiny().Tensor("output_norm.weight", {32}, /*type=*/8, std::string(34, 'x'))),
            "tensor output_norm.weight: type Q8_0, expected F32, F16 or BF16, as it is no matrix");
}

TEST_F(GgufCheckpointTest, FingerprintsAreThoseOfTheContent) {
  const auto fingerprint = [&](const GgufBuilder& file) {
    return *(*Checkpoint::Open(WriteFile(file)))->ComputeFingerprint();
  };
  const GgufBuilder file = test::GgufOf(test::MakeTinyLlama({}));
  EXPECT_EQ(fingerprint(file), fingerprint(file));
  EXPECT_NE(fingerprint(file), fingerprint(test::GgufOf(test::MakeTinyLlama({.seed = 2}))));
  GgufBuilder other = file;
  EXPECT_NE(fingerprint(file), fingerprint(other.F32("llama.rope.freq_base", 500)));
}

TEST_F(GgufCheckpointTest, ListsTensorsThatNothingReads) {
  GgufBuilder file = test::GgufOf(test::MakeTinyLlama({}));
  file.F32Tensor("blk.0.extra.weight", {1}, {1}).F32Tensor("rope_freqs.weight", {1}, {1});
  const auto checkpoint = Checkpoint::Open(WriteFile(file));
  // The configuration has refused the divisors already, which are not of this size.
  EXPECT_THAT(std::string(checkpoint.status().message()),
              EndsWith("tensor rope_freqs.weight: F32 [1], expected F32 [4]"));
  file.RemoveTensor("rope_freqs.weight");
  auto read = *Checkpoint::Open(WriteFile(file));
  const size_t all = read->UnusedNames().size();
  ASSERT_TRUE(read->Vector("model.norm.weight", 32, 0, 32).ok());
  ASSERT_TRUE(read->Matrix("model.layers.0.mlp.up_proj.weight", 48, 32).ok());
  EXPECT_EQ(read->UnusedNames().size(), all - 2);
  EXPECT_THAT(read->UnusedNames(), testing::Contains("blk.0.extra.weight"));
}

// The file has gains with 1 added, and norms with names of their own.
TEST_F(GgufCheckpointTest, GainsOfGemmaAreThoseOfTheFolder) {
  GgufBuilder file;
  file.Text("general.architecture", "gemma3");
  for (const auto& [key, value] : std::map<std::string, uint32_t>{{"block_count", 1},
                                                                  {"context_length", 64},
                                                                  {"embedding_length", 2},
                                                                  {"feed_forward_length", 4},
                                                                  {"attention.head_count", 1},
                                                                  {"attention.sliding_window", 8}})
    file.U32(absl::StrCat("gemma3.", key), value);
  file.F32("gemma3.attention.layer_norm_rms_epsilon", 1e-6f);
  test::SetByteVocabulary(3, &file);
  file.F32Tensor("token_embd.weight", {3, 2}, {1, 2, 3, 4, 5, 6});
  const std::map<std::string, std::string> norms = {
      {"input_layernorm", "attn_norm"},
      {"post_attention_layernorm", "post_attention_norm"},
      {"pre_feedforward_layernorm", "ffn_norm"},
      {"post_feedforward_layernorm", "post_ffw_norm"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"}};
  float value = 1;
  for (const auto& [folder, name] : norms)
    file.F32Tensor(absl::StrCat("blk.0.", name, ".weight"), {2}, {value += 0.25f, 1});
  auto checkpoint = *Checkpoint::Open(WriteFile(file));
  value = 0;
  for (const auto& [folder, name] : norms) {
    EXPECT_THAT(*checkpoint->Vector(absl::StrCat("model.layers.0.", folder, ".weight"), 2, 0, 2),
                ElementsAre(value += 0.25f, 0))
        << folder;
  }
}

// Phi-3 has q, k and v in one tensor, and gate and up in another.
TEST_F(GgufCheckpointTest, FusedTensorsOfPhi3HaveTheirNames) {
  GgufBuilder file;
  file.Text("general.architecture", "phi3");
  for (const auto& [key, value] : std::map<std::string, uint32_t>{{"block_count", 1},
                                                                  {"context_length", 64},
                                                                  {"embedding_length", 2},
                                                                  {"feed_forward_length", 2},
                                                                  {"attention.head_count", 1}})
    file.U32(absl::StrCat("phi3.", key), value);
  file.F32("phi3.attention.layer_norm_rms_epsilon", 1e-6f);
  test::SetByteVocabulary(3, &file);
  file.F32Tensor("token_embd.weight", {3, 2}, {1, 2, 3, 4, 5, 6});
  file.F32Tensor("blk.0.attn_qkv.weight", {6, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  file.F32Tensor("blk.0.ffn_up.weight", {4, 2}, {0, 1, 2, 3, 4, 5, 6, 7});
  auto checkpoint = *Checkpoint::Open(WriteFile(file));
  for (const auto& [name, rows] : {std::pair("self_attn.qkv_proj", 6), {"mlp.gate_up_proj", 4}}) {
    const auto matrix =
        checkpoint->Matrix(absl::StrCat("model.layers.0.", name, ".weight"), rows, 2);
    ASSERT_TRUE(matrix.ok()) << matrix.status();
    EXPECT_EQ(static_cast<const float*>(matrix->data)[2 * rows - 1], 2 * rows - 1);
  }
}

}  // namespace
}  // namespace coppice::model
