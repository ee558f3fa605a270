// Models whose weights the CUDA backend keeps in blocks (--weight_dtype): bit for bit the logits and
// tokens of the model whose weights are the values of the blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/simulator/fake/fake_device.h"
#include "kernels/element.h"
#include "kernels/quantise.h"
#include "model/model_runner.h"
#include "tests/model/model_harness.h"
#include "tests/model/reference_model.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/thread_communicator.h"
#include "tests/testing/tiny_family.h"
#include "tests/testing/tiny_gguf.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

namespace fake = kernels::cuda::fake;
using kernels::DType;
using testing::HasSubstr;

struct BlockModel {
  const char* weight_dtype;
  const char* dtype;  // of the checkpoint
  bool tied = false;
  bool reduced = false;  // the head has every third id

  friend void PrintTo(const BlockModel& model, std::ostream* out) {
    *out << model.weight_dtype << " " << model.dtype;
  }
};

// The tensor with the values that its matrix has in blocks.
void RoundToBlocks(DType format, const std::string& dtype, test::TinyTensor* tensor) {
  const int64_t rows = tensor->shape[0], columns = tensor->shape[1];
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t begin = 0; begin < columns; begin += kernels::kQuantisedGroup) {
      kernels::QuantisedGroup group = {};
      const int64_t count = std::min(kernels::kQuantisedGroup, columns - begin);
      float* const values = tensor->values.data() + row * columns + begin;
      for (int64_t k = 0; k < count; ++k) group.values[k][0] = values[k];
      kernels::Quantise(format, &group);
      for (int64_t k = 0; k < count; ++k) {
        const int code =
            format == DType::kQ4_0 ? group.codes[k][0] - 8 : static_cast<int8_t>(group.codes[k][0]);
        const float value = kernels::F16ToFloat(group.scale[0]) * static_cast<float>(code);
        values[k] = dtype == "BF16" ? kernels::Bf16ToFloat(kernels::FloatToBf16(value))
                                    : kernels::F16ToFloat(kernels::FloatToF16(value));
      }
    }
  }
}

// The largest difference, in units of the largest value.
float Distance(const std::vector<float>& a, const std::vector<float>& b) {
  float difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::abs(a[i] - b[i]));
    size = std::max(size, std::abs(b[i]));
  }
  return difference / size;
}

class BlockModelTest : public testing::Test {
 protected:
  static constexpr int kVocab = 96, kPrompt = 30;

  BlockModelTest() { fake::Configure({.devices = 2}); }
  ~BlockModelTest() override {
    EXPECT_THAT(fake::Violations(), testing::IsEmpty());
    fake::Configure({});
    fake::Recover();
  }

  std::unique_ptr<ModelRunner> Load(const std::string& dir, const std::string& weight_dtype,
                                    bool exact, const std::string& dtype = "auto") {
    ModelRunnerOptions options;
    options.dir = dir;
    options.backend = "cuda";
    options.dtype = dtype;
    options.weight_dtype = weight_dtype;
    options.kv_bytes = 1 << 20;
    options.threads = 1;
    options.max_rows = 128;
    options.exact = exact;
    return ModelRunner::Load(options, one_.get()).value();
  }

  // The logits behind a prompt, and behind each of `steps` tokens that follow it greedily.
  static std::vector<float> Decode(ModelRunner* runner, int steps) {
    BlockManager* const blocks = runner->blocks();
    std::vector<TokenId> tokens = {5};
    while (tokens.size() < kPrompt)
      tokens.push_back(static_cast<TokenId>((tokens.back() * 37 + 11) % kVocab));
    int cached = 0;
    const SequenceHandle sequence = blocks->Open({tokens.front()}, &cached);
    std::vector<float> all;
    for (int step = 0; step <= steps; ++step) {
      const auto fresh = absl::MakeConstSpan(tokens).last(step == 0 ? kPrompt : 1);
      StepBuilder builder = runner->NewStep();
      const int need =
          builder.AddPrefixRows(sequence, fresh, blocks->AppendPrefix(sequence, fresh).value(),
                                [](int) { return RowNeed(); });
      EXPECT_TRUE(runner->Submit(std::move(builder)).ok());
      runner->WaitForHead();
      const auto row = runner->Wait().value()->Whole(need + static_cast<int>(fresh.size()) - 1);
      all.insert(all.end(), row.begin(), row.end());
      tokens.push_back(
          static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin()));
    }
    blocks->Close(sequence);
    return all;
  }

  std::unique_ptr<comm::Communicator> one_ = comm::MakeSingleCommunicator();
};

class BlockWeightsTest : public BlockModelTest, public testing::WithParamInterface<BlockModel> {
 protected:
  BlockWeightsTest() {
    test::TinyLlama tiny = test::MakeTinyLlama({.hidden = 64,
                                                .intermediate = 96,
                                                .vocab = kVocab,
                                                .dtype = GetParam().dtype,
                                                .tied = GetParam().tied,
                                                .attention_bias = true});
    values_ = WithValues(tiny);
    if (GetParam().reduced) {
      std::vector<int> ids;
      for (int id = 0; id < kVocab; id += 3) ids.push_back(id);
      test::ReduceHead(&tiny, ids);
    }
    test::WriteTinyLlama(tiny, dir_.path());
    test::WriteTinyLlama(WithValues(tiny), values_dir_.path());
  }
  // The model whose weights are the values of the blocks.
  static test::TinyLlama WithValues(test::TinyLlama model) {
    const bool four = std::string(GetParam().weight_dtype) == "int4";
    for (auto& [name, tensor] : model.tensors) {
      if (tensor.shape.size() != 2) continue;
      const bool fine = !absl::StrContains(name, "mlp") && !absl::StrContains(name, "o_proj");
      RoundToBlocks(four && !fine ? DType::kQ4_0 : DType::kQ8_0, GetParam().dtype, &tensor);
    }
    return model;
  }

  test::TempDir dir_, values_dir_;
  test::TinyLlama values_;  // with its whole head
};

TEST_P(BlockWeightsTest, ExactLogitsAndTokensAreThoseOfTheValues) {
  const auto blocks = Load(dir_.path(), GetParam().weight_dtype, /*exact=*/true);
  const auto values = Load(values_dir_.path(), "auto", /*exact=*/true);
  EXPECT_TRUE(blocks->batch_invariant());
  const std::vector<float> got = Decode(blocks.get(), 10), want = Decode(values.get(), 10);
  ASSERT_EQ(got.size(), want.size());
  EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0);
}

TEST_P(BlockWeightsTest, TokensAreThoseOfTheValues) {
  const auto tokens = [&](ModelRunner* runner) {
    const std::vector<float> logits = Decode(runner, 10);
    std::vector<int64_t> best;
    for (size_t row = 0; row < logits.size(); row += kVocab) {
      const auto begin = logits.begin() + static_cast<int64_t>(row);
      best.push_back(std::max_element(begin, begin + kVocab) - begin);
    }
    return best;
  };
  const auto blocks = Load(dir_.path(), GetParam().weight_dtype, /*exact=*/false);
  const auto values = Load(values_dir_.path(), "auto", /*exact=*/false);
  EXPECT_EQ(tokens(blocks.get()), tokens(values.get()));
}

// Ranks cut rows and columns; where a cut meets a block, that rank has blocks of its own.
TEST_P(BlockWeightsTest, TwoRanksAreNearTheReference) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < 20; ++i) tokens.push_back(static_cast<TokenId>((7 * i * i + 3) % kVocab));
  const std::vector<double> want = ReferenceLogits(values_, tokens).back();
  test::RunRanks(2, [&](comm::Communicator* communicator) {
    auto loaded = LoadForTest(
        {.dir = dir_.path(), .weight_dtype = GetParam().weight_dtype, .max_rows = 64}, communicator,
        /*threads=*/1, "cuda");
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const auto logits = loaded->Run(PlanSketch(80).Prefix(tokens, 0, 20, 1).plan);
    ASSERT_TRUE(logits.ok()) << logits.status();
    if (communicator->rank() > 0) return;
    double difference = 0, size = 0;  // over the ids that the head has
    for (int id = 0; id < kVocab; id += GetParam().reduced ? 3 : 1) {
      difference = std::max(difference, std::abs((*logits)[id] - want[id]));
      size = std::max(size, std::abs(want[id]));
    }
    EXPECT_LT(difference, 0.2 * size);
  });
}

INSTANTIATE_TEST_SUITE_P(Formats, BlockWeightsTest,
                         testing::Values(BlockModel{"int8", "BF16"}, BlockModel{"int4", "BF16"},
                                         BlockModel{"int8", "F16"}, BlockModel{"int4", "F16", true},
                                         BlockModel{"int8", "BF16", false, true}),
                         [](const auto& info) {
                           return absl::StrCat(info.param.weight_dtype, "_", info.param.dtype,
                                               info.param.tied ? "_tied" : "",
                                               info.param.reduced ? "_reduced" : "");
                         });

// Blocks of a file stay as they are, where nothing else is asked.
TEST_F(BlockModelTest, BlocksOfAGgufFileHaveTheBitsOfTheirValues) {
  const test::TinyLlama tiny =
      test::MakeTinyLlama({.hidden = 64, .intermediate = 96, .vocab = kVocab});
  test::GgufBuilder file = test::GgufOf(tiny);
  std::mt19937 random(7);
  for (const auto& [name, tensor] : tiny.tensors) {
    if (tensor.shape.size() != 2) continue;
    std::vector<float> values;
    constexpr int kQ8 = 8;
    file.Tensor(test::GgufNameOf(name), tensor.shape, kQ8,
                test::RandomBlocks(tensor.shape[0] * tensor.shape[1], &random, &values));
  }
  test::TempDir dir;
  dir.Write("model.gguf", file.Bytes());
  const std::string path = dir.File("model.gguf");
  const test::CapturedLog log;
  const auto kept = Load(path, "auto", /*exact=*/true);
  EXPECT_THAT(log.text(), HasSubstr("MB of weights (Q8_0)"));
  const auto widened = Load(path, "auto", /*exact=*/true, "bf16");
  EXPECT_THAT(log.text(), HasSubstr("MB of weights (BF16)"));
  const std::vector<float> got = Decode(kept.get(), 5), want = Decode(widened.get(), 5);
  EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0);
  const auto quick = Load(path, "auto", /*exact=*/false);
  EXPECT_LT(Distance(Decode(quick.get(), 0), Decode(kept.get(), 0)), 5e-2);
}

// What the backend does not serve in blocks keeps the type of the model, and says so.
TEST(BlockWeightsFallbackTest, ExpertsAndF32KeepTheirType) {
  const test::TempDir experts, f32;
  test::WriteTinyLlama(test::MakeTinyFamily("qwen3_moe", {.dtype = "BF16"}), experts.path());
  test::WriteTinyLlama(test::MakeTinyLlama({}), f32.path());
  for (const auto& [dir, why, type] :
       {std::tuple(experts.path(), "weights in a model with experts; keeps them as BF16",
                   DType::kBF16),
        std::tuple(f32.path(), "weights beside F32; keeps them as F32", DType::kF32)}) {
    const test::CapturedLog log;
    const auto loaded = LoadForTest({.dir = dir, .weight_dtype = "int8", .max_rows = 8}, nullptr,
                                    /*threads=*/1, "cuda");
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(loaded->parts().weight_dtype, type);
    EXPECT_THAT(log.text(), HasSubstr(absl::StrCat("the cuda backend has no such ", why)));
  }
}

}  // namespace
}  // namespace coppice::model
