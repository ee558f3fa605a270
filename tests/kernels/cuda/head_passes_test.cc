// The forward pass of EAGLE-3 heads on the CUDA backend, compared with the double-precision
// reference: prompts in chunks, forests in which each node has a state of its own, true states after
// drafted ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "kernels/cuda/simulator/fake/fake_device.h"
#include "tests/model/eagle3_run.h"

namespace coppice::model {
namespace {

namespace fake = kernels::cuda::fake;

class CudaHeadTest : public testing::TestWithParam<HeadShape> {
 protected:
  ~CudaHeadTest() override { EXPECT_THAT(fake::Violations(), testing::IsEmpty()); }

  // Activations are of the type of the weights here.
  static double Tolerance() {
    const std::string& dtype = GetParam().head.dtype;
    return std::max(GetParam().relative, dtype == "F16" ? 5e-3 : dtype == "BF16" ? 4e-2 : 0.0);
  }
  static std::unique_ptr<HeadRun> NewRun(bool exact = false) {
    ModelRunnerOptions options;
    options.backend = "cuda";
    options.weight_dtype = GetParam().weight_dtype;
    options.kv_dtype = GetParam().kv_dtype;
    options.exact = exact;
    options.max_rows = 32;
    const test::TinyLlama target = HeadTarget();
    auto run = std::make_unique<HeadRun>(HeadOf(GetParam(), target), target, options, Tolerance());
    EXPECT_TRUE(run->ok());
    return run;
  }
};

TEST_P(CudaHeadTest, RowsOfAPromptAreThoseOfTheReference) {
  const auto run = NewRun();
  if (run->ok()) ReadPrompt(run.get());
}

TEST_P(CudaHeadTest, ForestsHaveStatesOfTheirOwnUntilTrueOnesCome) {
  for (const bool exact : {false, true}) {
    const auto run = NewRun(exact);
    if (run->ok()) GrowForests(run.get());
    if (HasFailure()) return;
  }
}

// Rounds of one size: from the third on, by the graphs of the first two. Each has another true state
// and another slot before its own.
TEST_P(CudaHeadTest, GraphsServeEveryState) {
  const auto run = NewRun();
  if (!run->ok()) return;
  run->Prefix(3, /*first_state=*/0, /*needs=*/false);
  run->Run();
  const int64_t graphs = fake::CountWork().graph_launches;
  for (int round = 0; round < 5; ++round) {
    const State truth = TrueState(100 + round, run->columns());
    const int root = run->Node(-1, 7 + round, &truth);
    run->Run();
    run->Node(root, 20 + round, nullptr);
    run->Run();
    if (HasFatalFailure()) return;
    run->Retain({root});
    run->Commit(root);
  }
  EXPECT_GE(fake::CountWork().graph_launches - graphs, 2 * 2 * 3);
}

INSTANTIATE_TEST_SUITE_P(Heads, CudaHeadTest, testing::ValuesIn(HeadShapes()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace coppice::model
