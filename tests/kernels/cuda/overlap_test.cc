// Launches that overlap, on the simulated device: which do, and what a device that refuses to record
// them changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/simulator/fake/fake_device.h"
#include "tests/kernels/cuda/small_decoder.h"
#include "tests/kernels/cuda/test_backend.h"
#include "tests/kernels/kernel_fixture.h"

namespace coppice::kernels {
namespace {

namespace fake = cuda::fake;
using testing::HasSubstr;
using testing::IsEmpty;

class OverlappingBackend final : public TestBackend {
 public:
  OverlappingBackend(bool overlap, std::vector<std::string>* warnings) {
    BackendOptions options = {"cuda", &threads_, communicator_.get()};
    options.overlap_launches = overlap;
    options.warn = [warnings](const std::string& message) { warnings->push_back(message); };
    backend_ = MakeBackend(options).value();
  }
  void Overwrite(const Tensor&, const std::vector<float>&) override {}
  std::vector<float> Read(const Tensor&) override { return {}; }

 private:
  Tensor New(int64_t, int64_t, DType) override { return {}; }
};

class OverlapTest : public testing::Test {
 protected:
  ~OverlapTest() override {
    EXPECT_THAT(fake::Violations(), IsEmpty());
    fake::Configure({});
    fake::Recover();
  }

  struct Outcome {
    int64_t launched = 0, recorded = 0;  // launches of ours that overlap: op by op, and in graphs
    int64_t graphs = 0;                  // launched by the last step
    std::vector<float> logits;           // of the last step
    std::vector<std::string> warnings;
  };
  // The same step op by op, captured, and replayed.
  static Outcome RunSteps(const fake::DeviceSettings& settings, bool overlap) {
    fake::Configure(settings);
    Outcome outcome;
    SmallDecoder decoder(std::make_unique<OverlappingBackend>(overlap, &outcome.warnings),
                         DType::kBF16);
    const StepPlan plan = PrefillPlan(5, 2);
    fake::WorkCounts before = fake::CountWork();
    for (int64_t* overlapping : {&outcome.launched, &outcome.recorded, &outcome.graphs}) {
      const StepRows* const rows = decoder.Run(plan);
      if (rows == nullptr) return outcome;
      const fake::WorkCounts after = fake::CountWork();
      *overlapping = overlapping == &outcome.graphs ? after.graph_launches - before.graph_launches
                                                    : after.overlapping - before.overlapping;
      before = after;
      outcome.logits.assign(rows->Whole(1).begin(), rows->Whole(1).end());
    }
    return outcome;
  }
};

TEST_F(OverlapTest, LaunchesOverlapFromComputeCapability9On) {
  const Outcome hopper = RunSteps({}, /*overlap=*/true);
  EXPECT_GT(hopper.launched, 10);  // not the products of cuBLASLt
  EXPECT_EQ(hopper.recorded, hopper.launched);
  EXPECT_EQ(hopper.graphs, 2);
  EXPECT_THAT(hopper.warnings, IsEmpty());
  for (const Outcome& other : {RunSteps({.major = 8}, true), RunSteps({}, false)}) {
    EXPECT_EQ(other.launched, 0);
    EXPECT_EQ(other.recorded, 0);
    EXPECT_EQ(other.graphs, 2);
    EXPECT_EQ(other.logits, hopper.logits);
  }
}

TEST_F(OverlapTest, GraphsAreCapturedWithoutWhereOverlapIsRefused) {
  const Outcome outcome = RunSteps({.captures_overlap = false}, /*overlap=*/true);
  EXPECT_GT(outcome.launched, 10);
  EXPECT_EQ(outcome.recorded, 0);
  EXPECT_EQ(outcome.graphs, 2);
  ASSERT_EQ(outcome.warnings.size(), 1u);  // not again for the head
  EXPECT_THAT(outcome.warnings[0], HasSubstr("the launches of CUDA graphs do not overlap"));
  EXPECT_EQ(outcome.logits, RunSteps({}, true).logits);
}

// No graph can be made, with overlap or without: op by op, launches still overlap.
TEST_F(OverlapTest, WithoutGraphsThereIsOneWarning) {
  const Outcome outcome =
      RunSteps({.small_device = 0, .captures_overlap = false}, /*overlap=*/true);
  EXPECT_EQ(outcome.recorded, outcome.launched);  // launched again
  EXPECT_EQ(outcome.graphs, 0);
  ASSERT_EQ(outcome.warnings.size(), 1u);
  EXPECT_THAT(outcome.warnings[0], HasSubstr("CUDA graphs are not used from now on"));
}

}  // namespace
}  // namespace coppice::kernels
