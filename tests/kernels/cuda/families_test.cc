// The forward pass of every family on the CUDA backend, compared with the double-precision
// reference: prompts in chunks, forests, two ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cuda/simulator/fake/fake_device.h"
#include "model/model_config.h"
#include "tests/model/model_harness.h"
#include "tests/model/reference_model.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/thread_communicator.h"
#include "tests/testing/tiny_family.h"

namespace coppice::model {
namespace {

namespace fake = kernels::cuda::fake;

constexpr int kVocab = 96;

class CudaFamilyTest : public testing::TestWithParam<std::string> {
 protected:
  CudaFamilyTest() { fake::Configure({.devices = 2}); }
  ~CudaFamilyTest() override {
    EXPECT_THAT(fake::Violations(), testing::IsEmpty());
    fake::Configure({});
    fake::Recover();
  }

  static std::vector<TokenId> SomeTokens(int count) {
    std::vector<TokenId> tokens = {5};
    while (static_cast<int>(tokens.size()) < count)
      tokens.push_back((tokens.back() * 37 + 11) % kVocab);
    return tokens;
  }

  // The relative errors of the rows of logits of a prompt that is read in two chunks, ascending;
  // none on other ranks than the first.
  std::vector<double> ErrorsOf(const test::TinyLlama& tiny, comm::Communicator* communicator) {
    const std::vector<TokenId> tokens = SomeTokens(50);
    auto loaded = LoadForTest({.dir = dir_.path(), .dtype = "auto", .max_rows = 64}, communicator,
                              /*threads=*/1, "cuda");
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    if (!loaded.ok()) return {INFINITY};
    const std::vector<std::vector<double>> want = ReferenceLogits(tiny, tokens);
    std::vector<double> errors;
    for (const auto& [begin, end] : {std::pair(0, 29), std::pair(29, 50)}) {
      const auto logits = loaded->Run(PlanSketch(80).Prefix(tokens, begin, end, end - begin).plan);
      EXPECT_TRUE(logits.ok()) << logits.status();
      if (!logits.ok()) return {INFINITY};
      if (communicator != nullptr && communicator->rank() > 0) continue;
      for (int t = begin; t < end; ++t) {
        const auto row = logits->begin() + (t - begin) * kVocab;
        errors.push_back(RelativeError(std::vector<float>(row, row + kVocab), want[t]));
      }
    }
    std::sort(errors.begin(), errors.end());
    return errors;
  }
  double ErrorOf(const test::TinyLlama& tiny, comm::Communicator* communicator = nullptr) {
    const std::vector<double> errors = ErrorsOf(tiny, communicator);
    return errors.empty() ? 0 : errors.back();
  }

  const test::TempDir dir_;
};

TEST_P(CudaFamilyTest, LogitsAreThoseOfTheReference) {
  const test::TinyLlama tiny = test::MakeTinyFamily(GetParam());
  test::WriteTinyLlama(tiny, dir_.path());
  EXPECT_LT(ErrorOf(tiny), 1e-5);
}

TEST_P(CudaFamilyTest, LogitsOfABf16CheckpointAreThoseOfTheReference) {
  const test::TinyLlama tiny = test::MakeTinyFamily(GetParam(), {.dtype = "BF16"});
  test::WriteTinyLlama(tiny, dir_.path());
  // A row whose best experts are about equal may take another one, so of a mixture of experts the
  // middle row counts.
  const std::vector<double> errors = ErrorsOf(tiny, nullptr);
  const bool routed = ReadModelConfig(dir_.path())->experts.count > 0;
  EXPECT_LT(routed ? errors[errors.size() / 2] : errors.back(), 1e-1);
}

TEST_P(CudaFamilyTest, LogitsOfTwoRanksAreThoseOfTheReference) {
  const test::TinyLlama tiny = test::MakeTinyFamily(GetParam());
  test::WriteTinyLlama(tiny, dir_.path());
  if (ReadModelConfig(dir_.path())->whole_qk_norm) return;  // several ranks are refused
  test::RunRanks(2, [&](comm::Communicator* communicator) {
    EXPECT_LT(ErrorOf(tiny, communicator), 1e-5) << "rank " << communicator->rank();
  });
}

// By the kernels of tiles, which take bf16 alone: nodes of a forest see their path alone, in every
// layer as far as its window reaches.
TEST_P(CudaFamilyTest, ForestsAreThoseOfTheReference) {
  for (const char* const dtype : {"F32", "BF16"}) {
    const test::TinyLlama tiny = test::MakeTinyFamily(GetParam(), {.dtype = dtype});
    const test::TempDir dir;
    test::WriteTinyLlama(tiny, dir.path());
    auto loaded = LoadForTest({.dir = dir.path(), .dtype = "auto", .max_rows = 64}, nullptr,
                              /*threads=*/1, "cuda");
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const std::vector<TokenId> prompt = SomeTokens(29);
    ASSERT_TRUE(loaded->Run(PlanSketch(64).Prefix(prompt, 0, 29, 0).plan).ok());
    const std::vector<ForestNode> nodes = {{-1, 7}, {0, 9}, {0, 11}, {2, 3}, {-1, 50}, {4, 51}};
    const auto logits = loaded->Run(PlanSketch(64).Forest(29, nodes).plan);
    ASSERT_TRUE(logits.ok()) << logits.status();
    for (size_t node = 0; node < nodes.size(); ++node) {
      std::vector<TokenId> path = prompt;
      for (int at = static_cast<int>(node); at >= 0; at = nodes[at].parent)
        path.insert(path.begin() + 29, nodes[at].token);
      const std::vector<float> row(logits->begin() + node * kVocab,
                                   logits->begin() + (node + 1) * kVocab);
      EXPECT_LT(RelativeError(row, ReferenceLogits(tiny, path).back()),
                tiny.options.dtype == "F32" ? 1e-5 : 1e-1)
          << dtype << " node " << node;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, CudaFamilyTest, testing::ValuesIn(test::TinyFamilies()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace coppice::model
