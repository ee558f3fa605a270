// Predictions for a GPU: single launches against times by hand, steps against what shapes say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/runtime/device_stream.h"
#include "lab/bench/cuda/draft_plan.h"
#include "lab/bench/cuda/forest_plan.h"
#include "lab/bench/cuda/predicted_drafts.h"
#include "lab/bench/cuda/predicted_step.h"
#include "lab/bench/cuda/predicted_table.h"

namespace coppice::bench {
namespace {

using kernels::cuda::LaunchCost;
using kernels::cuda::fake::Counted;

DeviceModel H100() { return DeviceNamed("h100").value(); }

// Round figures: 1 TB/s, 1 GHz, 100 multiprocessors.
Ceilings RoundCeilings() {
  Ceilings c;
  c.bandwidth = 1e12;
  c.flops = 100e12;
  c.mma_flops = 50e12;
  c.library = 0.5;
  c.cache_bandwidth = 4e12;
  c.cache_bytes = 20e6;
  c.clock = 1e9;
  c.issue = 2;
  c.stall = 5;
  c.load_us = 0.25;
  c.memory_us = 1;
  c.overlap = 1;
  c.gap_us = 2;
  c.overlapped_gap_us = 0.5;
  c.handoff_us = 4;
  c.host_bandwidth = 1e10;
  c.host_us = 30;
  c.multiprocessors = 100;
  return c;
}

Counted Kernel(LaunchCost cost, int64_t blocks, std::string name = "kernel") {
  cost.dependent_loads = 4;  // 1 us
  return {std::move(name), cost, blocks, 128, false};
}

TEST(KernelTimeTest, MemoryLimitsWhatIsCold) {
  LaunchCost cost = {.bytes = 50'000'000, .cold_bytes = 49'000'000, .resident = 8};
  const KernelTime time = TimeOf(Kernel(cost, 1000), RoundCeilings());
  EXPECT_DOUBLE_EQ(time.us, 1 + 49);
  EXPECT_EQ(time.limit, Limit::kMemory);
  EXPECT_DOUBLE_EQ(TimeOf(Kernel(cost, 0), RoundCeilings()).us, 1 + 98);  // of cuBLASLt
  // What is warm and fits half of the cache comes from there.
  cost.cold_bytes = 0;
  cost.bytes = 8'000'000;
  EXPECT_DOUBLE_EQ(TimeOf(Kernel(cost, 1000), RoundCeilings()).us, 1 + 2);
  cost.bytes = 16'000'000;
  EXPECT_DOUBLE_EQ(TimeOf(Kernel(cost, 1000), RoundCeilings()).us, 1 + 16);
  // Where a kernel streams weights, the rest is read again and again.
  cost.cold_bytes = 2'000'000;
  EXPECT_DOUBLE_EQ(TimeOf(Kernel(cost, 1000), RoundCeilings()).us, 1 + 4);
}

// Ten blocks keep ten times their bytes on the way in a microsecond.
TEST(KernelTimeTest, FewBlocksDoNotReachTheBandwidth) {
  const LaunchCost cost = {.bytes = 3'200'000, .cold_bytes = 3'200'000, .block_bytes = 32000};
  EXPECT_DOUBLE_EQ(TimeOf(Kernel(cost, 100), RoundCeilings()).us, 1 + 3.2);
  EXPECT_DOUBLE_EQ(TimeOf(Kernel(cost, 10), RoundCeilings()).us, 1 + 10);
  LaunchCost idle = cost;  // a grid of which ten blocks have work
  idle.blocks = 10;
  EXPECT_DOUBLE_EQ(TimeOf(Kernel(idle, 100), RoundCeilings()).us, 1 + 10);
}

TEST(KernelTimeTest, InstructionsSharedMemoryAndArithmetic) {
  const LaunchCost noisy = {.instructions = 2'000'000};
  EXPECT_DOUBLE_EQ(TimeOf(Kernel(noisy, 100), RoundCeilings()).us, 1 + 10);
  EXPECT_DOUBLE_EQ(TimeOf(Kernel(noisy, 50), RoundCeilings()).us, 1 + 20);
  EXPECT_EQ(TimeOf(Kernel(noisy, 50), RoundCeilings()).limit, Limit::kInstructions);
  const LaunchCost shared = {.shared_bytes = 128'000'000};
  EXPECT_DOUBLE_EQ(TimeOf(Kernel(shared, 100), RoundCeilings()).us, 1 + 10);
  EXPECT_EQ(TimeOf(Kernel(shared, 100), RoundCeilings()).limit, Limit::kSharedMemory);
  const LaunchCost products = {.flops = 1'000'000'000};
  EXPECT_DOUBLE_EQ(TimeOf(Kernel(products, 100), RoundCeilings()).us, 1 + 20);
  EXPECT_DOUBLE_EQ(TimeOf(Kernel(products, 0), RoundCeilings()).us, 1 + 10);  // of cuBLASLt
}

TEST(KernelTimeTest, ChainsOfInstructionsRunInWaves) {
  LaunchCost cost = {.serial_instructions = 1000, .resident = 2};  // 5 us
  EXPECT_DOUBLE_EQ(TimeOf(Kernel(cost, 200), RoundCeilings()).us, 1 + 5);
  EXPECT_DOUBLE_EQ(TimeOf(Kernel(cost, 201), RoundCeilings()).us, 1 + 10);
  EXPECT_EQ(TimeOf(Kernel(cost, 1), RoundCeilings()).limit, Limit::kLatency);
}

// Of two limits the second shows as far as it does not hide.
TEST(KernelTimeTest, TheSecondLimitHidesInPart) {
  const LaunchCost cost = {.instructions = 2'000'000, .shared_bytes = 64'000'000};  // 10, 5 us
  Ceilings c = RoundCeilings();
  c.overlap = 0.5;
  EXPECT_DOUBLE_EQ(TimeOf(Kernel(cost, 100), c).us, 1 + 10 + 2.5);
}

// A copy up, two kernels, the second of which overlaps, a copy down.
TEST(PredictTest, ByHand) {
  const LaunchCost cost = {.instructions = 2'000'000};
  Work work = {{.name = "copy to device", .cost = {.bytes = 10000}},
               Kernel(cost, 100, "candidate lists of pieces"),
               Kernel(cost, 100, "attention T16"),
               {.name = "copy to host", .cost = {.bytes = 20000}}};
  work[2].overlaps = true;
  const DeviceModel device = {"round", RoundCeilings(), RoundCeilings()};
  const PredictedStep step = Predict(work, device, /*round_trips=*/2);
  EXPECT_NEAR(step.copies.low, 1e-3 * (1 + 4 + 4 + 2), 1e-12);
  EXPECT_NEAR(step.lists.low, 1e-3 * 11, 1e-12);
  EXPECT_NEAR(step.attention.low, 1e-3 * 11, 1e-12);
  EXPECT_NEAR(step.gaps.low, 1e-3 * 0.5, 1e-12);
  EXPECT_NEAR(step.host.low, 1e-3 * 60, 1e-12);
  work[2].overlaps = false;
  EXPECT_NEAR(Predict(work, device, 2).gaps.low, 1e-3 * 2, 1e-12);
  EXPECT_EQ(step.bytes_up, 10000);
  EXPECT_EQ(step.bytes_down, 20000);
  EXPECT_EQ(step.launches, 2);
}

// Weights that are fetched early fill the gap, as far as there are any.
TEST(PredictTest, EarlyWeightsFillTheGap) {
  const DeviceModel device = {"round", RoundCeilings(), RoundCeilings()};
  LaunchCost cost = {.bytes = 50'000'000, .cold_bytes = 50'000'000, .early_bytes = 2000};
  Work work = {Kernel({}, 100), Kernel(cost, 100)};
  EXPECT_NEAR(Predict(work, device, 0).gaps.low, 1e-3 * 2, 1e-12);
  work[1].overlaps = true;
  EXPECT_NEAR(Predict(work, device, 0).gaps.low, 1e-3 * (0.5 - 0.2), 1e-12);
  work[1].cost.early_bytes = 100'000;
  EXPECT_NEAR(Predict(work, device, 0).gaps.low, 0, 1e-12);
}

TEST(PredictTest, KnowsItsDevices) {
  EXPECT_FALSE(DeviceNamed("a100").ok());
  EXPECT_GT(DeviceNamed("h200")->pessimistic.bandwidth, H100().optimistic.bandwidth);
}

TEST(PredictedTableTest, Coverage) {
  EXPECT_DOUBLE_EQ(CoverageOf(0.757, 7), 0.757);
  EXPECT_NEAR(LayersOf(0.757, 7, 4), 1 + 0.757 + 0.573 + 0.434 + 0.328, 1e-3);
  // What was measured of another pair: 2, 4 and 8 nodes, four levels.
  const double of_eight = 0.8205, p = 1 - (1 - of_eight) * std::pow(8.0 / 7, 0.56);
  EXPECT_NEAR(LayersOf(p, 8, 4), 3.49, 0.03);
  EXPECT_NEAR(LayersOf(p, 4, 4), 3.00, 0.05);
  EXPECT_NEAR(LayersOf(p, 2, 4), 2.38, 0.05);
}

// Over the real planner and backend.
class GpuPredictionTest : public testing::Test {
 protected:
  void SetUp() override {
    UseCountingDevice(H100());
    stream_ = std::make_unique<kernels::cuda::DeviceStream>(
        kernels::cuda::DeviceStream::Create("the model").value());
  }
  std::unique_ptr<LlamaModel> Model(const ModelShape& shape, bool overlap = false) {
    LlamaOptions options;
    options.shape = shape;
    options.max_rows = 512;
    options.blocks = 20000;
    options.overlap_launches = overlap;
    return LlamaModel::Create(options, stream_.get()).value();
  }

  std::unique_ptr<kernels::cuda::DeviceStream> stream_;
};

Interval SumOfCauses(const PredictedStep& step) {
  Interval sum;
  for (const auto& [cause, ms] : step.causes) sum += ms;
  return sum;
}

TEST_F(GpuPredictionTest, AStepReadsWeightsAndKvOnce) {
  const auto target = Model(kTarget);
  StepPlan plan = PlainPlan(1000).plan;
  NeedEveryRow(&plan);
  const Work work = CountStep(plan, target.get()).value();
  int64_t weights = 0, kv = 0;
  for (const Counted& piece : work) {
    if (piece.name.find("product") == 0) weights += piece.cost.cold_bytes;
    if (piece.name.find("attention") == 0) kv += piece.cost.cold_bytes;
  }
  EXPECT_EQ(weights, kTarget.weight_bytes());
  EXPECT_EQ(kv, 1000 * kTarget.kv_token_bytes());
}

TEST_F(GpuPredictionTest, PartsAndCausesAreTheWhole) {
  const auto target = Model(kTarget);
  StepPlan plan = ForestPlan(8, 1024, 32).plan;
  NeedDraws(kBeams, &plan);
  const Work work = CountStep(plan, target.get()).value();
  const PredictedStep step = Predict(work, H100(), 1);
  const Interval causes = SumOfCauses(step), whole = step.total_ms();
  EXPECT_NEAR(causes.low, whole.low, 1e-9);
  EXPECT_NEAR(causes.high, whole.high, 1e-9);
  Interval kernels;
  for (const auto& [name, of] : step.kernels) kernels += of.ms;
  EXPECT_NEAR(kernels.high, step.kernels_ms().high, 1e-9);
  EXPECT_LT(whole.low, whole.high);
  // A device between the ends lies between them.
  DeviceModel between = H100();
  between.optimistic.bandwidth = between.pessimistic.bandwidth = 2.9e12;
  between.optimistic.gap_us = between.pessimistic.gap_us = 1.3;
  const Interval narrower = Predict(work, between, 1).total_ms();
  EXPECT_GT(narrower.low, whole.low);
  EXPECT_LT(narrower.high, whole.high);
  PredictedStep twice = step;
  twice.Add(step);
  EXPECT_NEAR(twice.total_ms().high, 2 * whole.high, 1e-9);
  EXPECT_EQ(twice.launches, 2 * step.launches);
  EXPECT_EQ(twice.Largest(2), step.Largest(2));
}

// A list with noise is made for each slot; one of more tokens than warps needs a longer search.
TEST_F(GpuPredictionTest, NoiseCosts) {
  const auto draft = Model(kDrafts[2]);
  const auto lists = [&](int slots, int count) {
    StepPlan plan = ForestPlan(4, 100, 32).plan;
    NeedDraws(slots, &plan);
    for (RowNeed& need : plan.needs) need.count = count;
    return PredictStep(plan, H100(), draft.get()).value().kernels.at("candidate lists of pieces");
  };
  EXPECT_EQ(lists(4, 1).limit, Limit::kInstructions);
  EXPECT_GT(lists(4, 1).ms.low, 2 * lists(1, 1).ms.low);
  EXPECT_GT(lists(4, 20).ms.low, 1.3 * lists(4, 1).ms.low);
}

TEST_F(GpuPredictionTest, OverlapShortensGapsAlone) {
  StepPlan plan = PlainPlan(1000).plan;
  NeedEveryRow(&plan);
  const auto draft = Model(kDrafts[2]), overlapped = Model(kDrafts[2], /*overlap=*/true);
  const PredictedStep plain = PredictStep(plan, H100(), draft.get()).value();
  const PredictedStep step = PredictStep(plan, H100(), overlapped.get()).value();
  EXPECT_LT(step.gaps.high, plain.gaps.high);
  EXPECT_DOUBLE_EQ(step.kernels_ms().high, plain.kernels_ms().high);
  EXPECT_EQ(step.launches, plain.launches);
}

TEST_F(GpuPredictionTest, FirstLevelsOfForests) {
  const auto draft = Model(kDrafts[2]);
  DraftShape shape = {2, 1000};
  const Work work = CountForests(DraftForests(shape).plan, draft.get()).value();
  int64_t launches = 0;
  for (int levels = 1; levels <= shape.depth; ++levels) {
    const PredictedStep step = Predict(FirstLevels(work, levels), H100(), 1);
    EXPECT_EQ(step.kernels.at("choice of levels").launches, levels);
    EXPECT_GT(step.launches, launches);
    EXPECT_GT(step.bytes_down, 0);
    launches = step.launches;
  }
  EXPECT_EQ(FirstLevels(work, shape.depth).size(), work.size());
  shape.depth = 2;
  const Work two = CountForests(DraftForests(shape).plan, draft.get()).value();
  EXPECT_EQ(Predict(two, H100(), 1).launches, Predict(FirstLevels(work, 2), H100(), 1).launches);
}

int64_t ColdProductBytes(const Work& work) {
  int64_t bytes = 0;
  for (const Counted& piece : work) {
    if (piece.name.find("product") == 0) bytes += piece.cost.cold_bytes;
  }
  return bytes;
}

TEST_F(GpuPredictionTest, FormatsOfWeights) {
  const ModelShape shape = PredictedDrafts()[1].shape;
  const auto draft = Model(shape);
  const Work work = CountStep(DraftForests({1, 1000}).plan.levels.back(), draft.get()).value();
  EXPECT_EQ(ColdProductBytes(work), shape.weight_bytes());
  const int64_t weights = shape.weight_bytes() / 2;
  EXPECT_EQ(ColdProductBytes(WithFormat(work, shape, WeightFormat::kInt8)), weights * 34 / 32);
  const int64_t edges = int64_t{shape.hidden} * (shape.kept + shape.layers * shape.qkv_columns());
  EXPECT_EQ(ColdProductBytes(WithFormat(work, shape, WeightFormat::kInt4)),
            edges * 34 / 32 + (weights - edges) * 18 / 32);
  // Only ids of the reduced head are multiplied; the rest is written, not read.
  EXPECT_EQ(Predict(work, H100(), 1).kernels.count("scatter of logits"), 1u);
}

// The forward passes of a head on states, and of a target that keeps them.
TEST_F(GpuPredictionTest, AHeadOnStates) {
  const ModelShape shape = PredictedDrafts()[3].shape;
  ASSERT_TRUE(shape.takes_states);
  const auto head = Model(shape);
  DraftShape forest = {2, 1000};
  forest.roots = 2;
  forest.depth = 3;
  forest.state_columns = shape.hidden;
  forest.again = 3;
  const Work work = CountForests(DraftForests(forest).plan, head.get()).value();
  EXPECT_EQ(ColdProductBytes(work), forest.depth * shape.weight_bytes());
  const PredictedStep step = Predict(work, H100(), 1);
  const auto bytes_of = [](const PredictedStep& some, const std::string& name) {
    return some.kernels.at(name).bytes;
  };
  for (const char* name : {"states loaded", "states stored", "norm of a pair", "embedding"})
    EXPECT_EQ(step.kernels.at(name).launches, forest.depth) << name;
  // Rows of the path that comes again are not handed on: they have no needs.
  const int64_t rows = 2 * (2 + 3 + 2 * 7), needs = rows - 2 * 3, row_bytes = 6 * shape.hidden;
  EXPECT_EQ(bytes_of(step, "states loaded"), rows * row_bytes);
  EXPECT_EQ(bytes_of(step, "states stored"), needs * row_bytes);
  // True states come with the plan of the first level, and no others.
  const int64_t states = 2 * (2 + 3) * 2 * shape.hidden;
  EXPECT_GT(step.bytes_up, states);
  EXPECT_LT(step.bytes_up, states + (64 << 10));
}

TEST_F(GpuPredictionTest, ATargetThatKeepsStates) {
  LlamaOptions options;
  options.max_rows = 100;
  options.blocks = 300;
  options.keeps_states = true;
  const auto target = LlamaModel::Create(options, stream_.get()).value();
  StepPlan plan = ForestPlan(1, 1000, 16).plan;
  NeedEveryRow(&plan);
  const Work work = CountStep(plan, target.get()).value();
  const int64_t hidden = kTarget.hidden;
  EXPECT_EQ(ColdProductBytes(work) - kTarget.weight_bytes(),
            std::ssize(kStateLayers) * 2 * hidden * hidden);
  const PredictedStep step = Predict(work, H100(), 1);
  EXPECT_EQ(step.kernels.at("states stored").launches, 1);
  EXPECT_EQ(step.kernels.at("states stored").bytes, 16 * 6 * hidden);
  const Work read = CountStates(10, target.get()).value();
  const PredictedStep reading = Predict(read, H100(), /*round_trips=*/0);
  EXPECT_EQ(reading.launches, 1);
  EXPECT_EQ(reading.bytes_up, 0);
  EXPECT_EQ(reading.bytes_down, 10 * 2 * hidden);
}

}  // namespace
}  // namespace coppice::bench
