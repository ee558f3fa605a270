// What a step costs the host in calls, and what it shows meanwhile. The simulated device counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/cuda/runtime/device_stream.h"
#include "kernels/cuda/simulator/fake/fake_device.h"
#include "kernels/cuda/steps/step_upload.h"
#include "tests/kernels/cuda/small_decoder.h"
#include "tests/kernels/kernel_fixture.h"
#include "tests/testing/temp_dir.h"

namespace coppice::kernels {
namespace {

namespace fake = cuda::fake;

class StepCostTest : public testing::TestWithParam<DType> {
 protected:
  // What the n-th run of the plan enqueues.
  static fake::WorkCounts CostOfRun(int n, SmallDecoder* decoder, const StepPlan& plan) {
    for (int i = 1; i < n; ++i) decoder->Run(plan);
    const fake::WorkCounts before = fake::CountWork();
    decoder->Run(plan);
    fake::WorkCounts cost = fake::CountWork();
    cost.launches -= before.launches;
    cost.recorded -= before.recorded;
    cost.graph_launches -= before.graph_launches;
    cost.copies_up -= before.copies_up;
    cost.copies_down -= before.copies_down;
    cost.bytes_up -= before.bytes_up;
    cost.bytes_down -= before.bytes_down;
    return cost;
  }
};

INSTANTIATE_TEST_SUITE_P(Types, StepCostTest, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return DTypeName(info.param); });

// Two layers of nine launches, gather, commit and embedding; the head has two. The bias of q, k and
// v is added by the rotary positions.
TEST_P(StepCostTest, OneCopyUpOneCopyDownAndTwoLaunches) {
  SmallDecoder graphs(TestBackend::Make("cuda"), GetParam());
  SmallDecoder single(TestBackend::Make("cuda", false, /*graphs=*/false), GetParam());
  const StepPlan plan = PrefillPlan(11, 3);
  const fake::WorkCounts by_graph = CostOfRun(3, &graphs, plan);
  EXPECT_EQ(by_graph.graph_launches, 2);
  EXPECT_EQ(by_graph.launches, 0);
  EXPECT_EQ(by_graph.recorded, 0);
  const fake::WorkCounts one_by_one = CostOfRun(3, &single, plan);
  EXPECT_EQ(one_by_one.graph_launches, 0);
  EXPECT_EQ(one_by_one.launches, 2 * 9 + 1 + 2 + 2);
  for (const fake::WorkCounts& cost : {by_graph, one_by_one}) {
    EXPECT_EQ(cost.copies_up, 1);
    EXPECT_EQ(cost.copies_down, 1);
    EXPECT_EQ(cost.bytes_down, 3 * SmallDecoder::kVocab * sizeof(float));  // of the needs alone
    EXPECT_LT(cost.bytes_up, 4096u);
  }
}

TEST_P(StepCostTest, GraphsComeWithTheSecondStepOfASize) {
  SmallDecoder graphs(TestBackend::Make("cuda"), GetParam());
  const fake::WorkCounts first = CostOfRun(1, &graphs, PrefillPlan(11, 3));
  EXPECT_EQ(first.launches, 23);
  EXPECT_EQ(first.recorded, 0);
  const fake::WorkCounts second = CostOfRun(1, &graphs, PrefillPlan(11, 3));
  EXPECT_EQ(second.launches, 0);
  EXPECT_EQ(second.recorded, 23);
  EXPECT_EQ(second.graph_launches, 2);
  // Other rows and needs of the same buckets: 16 and 4.
  const fake::WorkCounts alike = CostOfRun(1, &graphs, PrefillPlan(15, 4));
  EXPECT_EQ(alike.recorded + alike.launches, 0);
  EXPECT_EQ(alike.graph_launches, 2);
  // Of another body and the same head.
  const fake::WorkCounts larger = CostOfRun(1, &graphs, PrefillPlan(17, 4));
  EXPECT_EQ(larger.launches, 21);
  EXPECT_EQ(larger.graph_launches, 1);
}

// The body of a large step is launched as it is; its head may be one of a bucket.
TEST_P(StepCostTest, StepsBeyondTheLastBucketHaveNoGraphOfTheBody) {
  SmallDecoder graphs(TestBackend::Make("cuda"), GetParam(), /*max_rows=*/600);
  const fake::WorkCounts cost = CostOfRun(2, &graphs, PrefillPlan(576, 3));  // 9 tiles
  EXPECT_EQ(cost.launches, 21);
  EXPECT_EQ(cost.recorded, 2);
  EXPECT_EQ(cost.graph_launches, 1);
  EXPECT_EQ(cost.copies_up, 1);
}

// Three launches more, in the graph of the head; their tasks come with the plan.
TEST_P(StepCostTest, CandidateListsAreOfTheSameCopyUpAndTheSameGraph) {
  SmallDecoder graphs(TestBackend::Make("cuda", /*always_list=*/true), GetParam());
  const auto listed = [](int rows, int needs) {
    StepPlan plan = PrefillPlan(rows, needs);
    for (RowNeed& need : plan.needs) {
      need.form = RowNeed::Form::kTop;
      need.count = 5;
      need.sums = true;
    }
    return plan;
  };
  const fake::WorkCounts first = CostOfRun(1, &graphs, listed(11, 3));
  EXPECT_EQ(first.launches, 23 + 3);
  EXPECT_EQ(first.copies_up, 1);
  EXPECT_EQ(first.copies_down, 1);
  EXPECT_LT(first.bytes_down, SmallDecoder::kVocab * sizeof(float));
  EXPECT_EQ(CostOfRun(1, &graphs, listed(11, 3)).recorded, 23 + 3);
  // Other numbers of lists that the same grids have room for: those of needs beyond are none.
  const fake::WorkCounts alike = CostOfRun(1, &graphs, listed(15, 4));
  EXPECT_EQ(alike.recorded + alike.launches, 0);
  EXPECT_EQ(alike.graph_launches, 2);
  EXPECT_EQ(alike.copies_up, 1);
  EXPECT_EQ(alike.copies_down, 1);
  // The same needs without lists are another head.
  EXPECT_EQ(CostOfRun(1, &graphs, PrefillPlan(15, 4)).launches, 2);
}

// Where the skinny kernel was the fastest, SwiGLU is part of its product: eight launches a layer.
TEST_P(StepCostTest, SkinnyProductsMakeSwiGlu) {
  fake::Configure({.work_us = 5, .product_us = [](const fake::FakeProduct&) { return 1000.0; }});
  const test::TempDir cache;
  SmallDecoder tuned(TestBackend::Make("cuda", false, /*graphs=*/false), GetParam());
  SmallDecoder skinny(TestBackend::Make("cuda", false, /*graphs=*/false, cache.path()), GetParam());
  ASSERT_TRUE(skinny.backend()->Prepare(skinny.pass(), {}).ok());
  const StepPlan plan = PrefillPlan(11, 3);
  const int64_t all = CostOfRun(2, &tuned, plan).launches;
  EXPECT_EQ(all, 2 * 9 + 1 + 2 + 2);
  EXPECT_EQ(CostOfRun(2, &skinny, plan).launches, GetParam() == DType::kBF16 ? all - 2 : all);
  fake::Configure({});
}

TEST_P(StepCostTest, CommitsAloneAreOneLaunch) {
  SmallDecoder graphs(TestBackend::Make("cuda"), GetParam());
  StepPlan plan;
  plan.commits = {{40, 50}, {41, 51}};
  const fake::WorkCounts cost = CostOfRun(3, &graphs, plan);
  EXPECT_EQ(cost.graph_launches, 1);
  EXPECT_EQ(cost.launches, 0);
  EXPECT_EQ(cost.copies_up, 1);
  EXPECT_EQ(cost.copies_down, 0);
}

// Whoever watches sees the end of the body and of the step, and more of a body that no graph holds.
TEST(StepProgressTest, PartsAreSeenWhenTheyAreDone) {
  fake::Configure({.work_per_query = 1});
  for (const bool graphs : {false, true}) {
    int parts = 0;
    ThreadTeam threads(1);
    const auto one = comm::MakeSingleCommunicator();
    BackendOptions options = {"cuda", &threads, one.get()};
    options.graphs = graphs;
    options.on_part = [&] { ++parts; };
    class Tested final : public TestBackend {
     public:
      explicit Tested(const BackendOptions& options) { backend_ = MakeBackend(options).value(); }
      void Overwrite(const Tensor&, const std::vector<float>&) override {}
      std::vector<float> Read(const Tensor&) override { return {}; }

     private:
      Tensor New(int64_t, int64_t, DType) override { return {}; }
    };
    SmallDecoder decoder(std::make_unique<Tested>(options), DType::kF32);
    const StepPlan plan = PrefillPlan(2, 1);
    for (int i = 0; i < 3; ++i) {
      parts = 0;
      ASSERT_TRUE(decoder.backend()->Submit(plan, decoder.pass()).ok());
      EXPECT_EQ(parts, 0);  // nothing has run
      bool head = decoder.backend()->HeadReached();
      EXPECT_FALSE(head);
      while (!head) head = decoder.backend()->HeadReached();
      const int of_body = parts;
      ASSERT_TRUE(decoder.backend()->Wait().ok());
      EXPECT_EQ(parts, of_body + 1);
      if (graphs && i > 0) {
        EXPECT_EQ(of_body, 1);
      } else {
        EXPECT_GT(of_body, 4);
      }
    }
  }
  fake::Configure({});
}

// A copy that is still queued reads its block when it runs: the next plan must not be written
// there.
TEST(StepUploadTest, AQueuedCopyKeepsItsPlan) {
  auto stream = cuda::DeviceStream::Create("a test").value();
  cuda::StepUpload upload;
  const auto tokens = cuda::PinnedBuffer::Allocate(2 * sizeof(TokenId), "a test").value();
  cuda::DeviceStep step;
  const auto header = cuda::PinnedBuffer::Allocate(2 * sizeof step, "a test").value();
  StepPlan plan = PlanOfRows(1);
  for (const int i : {0, 1}) {
    plan.token = {100 + i};
    ASSERT_TRUE(upload.Upload(plan, {1, 0}, nullptr, nullptr, &stream).ok());
    ASSERT_TRUE(
        stream
            .CopyToHost(header.data() + i * sizeof step, upload.step().step, sizeof step, "a test")
            .ok());
    // The arrays lie behind the header, token first.
    ASSERT_TRUE(
        stream
            .CopyToHost(tokens.data() + i * sizeof(TokenId),
                        reinterpret_cast<const uint8_t*>(upload.step().step) +
                            (kMostKvGroups * (sizeof(cuda::DeviceStep) + sizeof(cuda::DeviceWork)) +
                             sizeof(cuda::DeviceLists) + sizeof(cuda::DeviceLevels) + 15) /
                                16 * 16,
                        sizeof(TokenId), "a test")
            .ok());
  }
  ASSERT_TRUE(stream.Synchronize("a test").ok());
  for (const int i : {0, 1}) {
    std::memcpy(&step, header.data() + i * sizeof step, sizeof step);
    EXPECT_EQ(step.rows, 1);
    TokenId token = 0;
    std::memcpy(&token, tokens.data() + i * sizeof token, sizeof token);
    EXPECT_EQ(token, 100 + i);
  }
  EXPECT_THAT(fake::Violations(), testing::IsEmpty());
}

// Where several ranks run the step, whose blocks may grow at other steps.
TEST(StepUploadTest, WhatLaunchesAreGivenStays) {
  auto stream = cuda::DeviceStream::Create("a test").value();
  cuda::StepUpload upload(/*stays=*/true), moves;
  StepPlan plan = PlanOfRows(1);
  const cuda::DeviceStep *place = nullptr, *other = nullptr;
  for (const size_t slots : {1u, 100000u}) {
    plan.chain.assign(slots, 17);
    plan.chain_begin = {0, static_cast<int32_t>(slots)};
    ASSERT_TRUE(upload.Upload(plan, {1, 0}, nullptr, nullptr, &stream).ok());
    ASSERT_TRUE(moves.Upload(plan, {1, 0}, nullptr, nullptr, &stream).ok());
    ASSERT_TRUE(stream.Synchronize("a test").ok());
    if (place != nullptr) {
      EXPECT_EQ(upload.step().step, place);
      EXPECT_NE(moves.step().step, other);
    }
    place = upload.step().step;
    other = moves.step().step;
    EXPECT_EQ(place->rows, 1);  // the test may read the simulated device
    EXPECT_EQ(place->chain[slots - 1], 17);
  }
}

// Rows up to the bucket: token 0 at position 0, in the sink, without a context.
TEST(StepUploadTest, PadsRowsWithWhatNobodySees) {
  auto stream = cuda::DeviceStream::Create("a test").value();
  cuda::StepUpload upload;
  StepPlan plan = PlanOfRows(3);
  plan.token = {7, 8, 9};
  plan.position = {4, 5, 6};
  plan.slot = {20, 21, 22};
  plan.chain = {21, 22, 22};
  plan.chain_begin = {0, 0, 1, 3};
  plan.segments = {{0, 3, 5}};
  plan.table = {1};
  plan.table_begin = {0, 1};
  ASSERT_TRUE(upload.Upload(plan, cuda::PaddedShape(3, 0), nullptr, nullptr, &stream).ok());
  ASSERT_TRUE(stream.Synchronize("a test").ok());
  const cuda::DeviceStep& step = *upload.step().step;  // the test may read the simulated device
  EXPECT_EQ(upload.step().rows, 4);
  EXPECT_EQ(step.rows, 3);
  EXPECT_EQ(step.token[2], 9);
  EXPECT_EQ(step.token[3], 0);
  EXPECT_EQ(step.position[3], 0);
  EXPECT_EQ(step.slot[3], 0);
  EXPECT_EQ(step.segment[3], 0);
  EXPECT_EQ(step.prefix_len[2], 5);
  EXPECT_EQ(step.prefix_len[3], 0);
  EXPECT_EQ(step.chain_begin[3], 3);
  EXPECT_EQ(step.chain_begin[4], 3);
}

}  // namespace
}  // namespace coppice::kernels
