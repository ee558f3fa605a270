// The whole model on every instruction set of this machine and with every type of weights and KV: the logits
// of a token are the same bits alone, in a batch of any size, as prefill, as a chain or as a node of a
// tree, with one thread and with two. The matrices are large enough to be divided among threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "absl/strings/match.h"
#include "kernels/cpu/kernel_target.h"
#include "sampling/rng.h"
#include "tests/model/model_harness.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

using kernels::cpu::KernelTarget;

constexpr int kVocab = 1501;
constexpr int kTokens = 71;  // a batch of 64 after a first one of 7; not a whole number of blocks
constexpr int kFirst = 7;

const std::vector<TokenId>& Tokens() {
  static const auto* tokens = [] {
    auto* made = new std::vector<TokenId>;
    for (int i = 0; i < kTokens; ++i)
      made->push_back(static_cast<TokenId>(sampling::Finalize(i + 31) % kVocab));
    return made;
  }();
  return *tokens;
}

class BatchInvariance : public testing::TestWithParam<std::tuple<KernelTarget, std::string>> {
 protected:
  void SetUp() override {
    kernels::cpu::SetKernelTarget(std::get<0>(GetParam()));
    std::string type = std::get<1>(GetParam());
    if (absl::EndsWith(type, "_kv8")) {
      type.resize(type.size() - 4);
      options_.kv_dtype = "int8";
    }
    test::TinyLlamaOptions tiny{.hidden = 320, .heads = 5, .kv_heads = 5, .intermediate = 704};
    tiny.vocab = kVocab;
    tiny.dtype = type == "f32" ? "F32" : "BF16";
    test::WriteTinyLlama(test::MakeTinyLlama(tiny), dir_.path());
    options_.dir = dir_.path();
    options_.max_rows = 2 * kTokens;
    if (type == "int8" || type == "int4") options_.weight_dtype = type;
  }
  void TearDown() override { kernels::cpu::ResetKernelTarget(); }

  LoadedModel Load(int threads) { return LoadForTest(options_, nullptr, threads).value(); }

  test::TempDir dir_;
  LoadOptions options_;
};

// The logits of tokens [begin, end), which are computed in one pass.
std::vector<float> Prefill(LoadedModel* model, int begin, int end) {
  return *model->Run(PlanSketch(2 * kTokens).Prefix(Tokens(), begin, end, end - begin).plan);
}

std::vector<float> Joined(std::vector<float> first, const std::vector<float>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

TEST_P(BatchInvariance, LogitsAreTheSameBitsInEveryForm) {
  LoadedModel model = Load(1);
  std::vector<float> alone;
  for (int i = 0; i < kTokens; ++i) alone = Joined(std::move(alone), Prefill(&model, i, i + 1));

  for (const int threads : {1, 2}) {
    SCOPED_TRACE(threads);
    LoadedModel other = Load(threads);
    const std::vector<float> first = Prefill(&other, 0, kFirst);
    EXPECT_TRUE(Joined(first, Prefill(&other, kFirst, kTokens)) == alone) << "7 rows, then 64";
    EXPECT_TRUE(Prefill(&other, 0, kTokens) == alone) << "71 rows";

    // The same tokens as one chain, then with a branch beside every one of them.
    for (const int branches : {0, 1}) {
      ASSERT_TRUE(other.Run(PlanSketch(2 * kTokens).Prefix(Tokens(), 0, kFirst, 0).plan).ok());
      std::vector<ForestNode> nodes;
      std::vector<int> chain;
      for (int i = kFirst; i < kTokens; ++i) {
        const int parent = chain.empty() ? -1 : chain.back();
        for (int b = 0; b < branches; ++b)
          nodes.push_back({parent, static_cast<TokenId>((Tokens()[i] + 1) % kVocab)});
        chain.push_back(static_cast<int>(nodes.size()));
        nodes.push_back({parent, Tokens()[i]});
      }
      const std::vector<float> rows =
          *other.Run(PlanSketch(2 * kTokens).Forest(kFirst, nodes).plan);
      for (int i = kFirst; i < kTokens; ++i) {
        const auto row = rows.begin() + int64_t{chain[i - kFirst]} * kVocab;
        const auto expected = alone.begin() + int64_t{i} * kVocab;
        ASSERT_TRUE(std::equal(row, row + kVocab, expected)) << "token " << i << ", " << branches;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(TargetsAndTypes, BatchInvariance,
                         testing::Combine(testing::ValuesIn(kernels::cpu::SupportedKernelTargets()),
                                          testing::Values("f32", "bf16", "int8", "int4", "f32_kv8",
                                                          "bf16_kv8")),
                         [](const auto& info) {
                           std::string name =
                               kernels::cpu::KernelTargetName(std::get<0>(info.param));
                           for (char& c : name) c = c == '-' || c == ' ' ? '_' : c;
                           return name + "_" + std::get<1>(info.param);
                         });

}  // namespace
}  // namespace coppice::model
