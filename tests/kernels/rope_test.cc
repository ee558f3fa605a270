#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/cpu/kv_pool.h"
#include "kernels/element.h"
#include "kernels/rope_table.h"
#include "tests/kernels/kernel_fixture.h"

namespace coppice::kernels {
namespace {

TEST(RopeTableTest, Llama3ScalingKeepsShortBlendsMiddleStretchesLongWavelengths) {
  RopeConfig config;
  config.head_dim = 128;
  config.max_positions = 4;
  config.theta = 500000.0;
  config.llama3_factor = 8.0;
  const std::vector<double> frequencies = RopeFrequencies(config);
  // Llama 3.1: inv_freq of transformers' _compute_llama3_parameters.
  const std::pair<int, double> expected[] = {{0, 1.0},
                                             {10, 0.12868737343265052},
                                             {28, 0.0032114459947525913},
                                             {29, 0.002166570763503359},
                                             {31, 0.0008567514129196321},
                                             {34, 0.00017850781276799638},
                                             {35, 9.556212353964683e-05},
                                             {63, 3.068925988914511e-07}};
  for (const auto& [pair, frequency] : expected)
    EXPECT_NEAR(frequencies[pair] / frequency, 1.0, 1e-12) << pair;
}

TEST(RopeTableTest, LinearScalingStretchesPositions) {
  RopeConfig config;
  config.head_dim = 8;
  config.max_positions = 9;
  const HostRopeTable plain = BuildRopeTable(config);
  config.linear_factor = 4.0;
  const HostRopeTable scaled = BuildRopeTable(config);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(scaled.cos[8 * 4 + i], plain.cos[2 * 4 + i]);
    EXPECT_EQ(scaled.sin[8 * 4 + i], plain.sin[2 * 4 + i]);
  }
}

class RopeTest : public KernelTest {};

TEST_P(RopeTest, RotatesHalvesAndStoresKAndV) {
  constexpr int kQHeads = 4, kKvHeads = 2, kRows = 5, kLayer = 1;
  const std::vector<int32_t> positions = {0, 1, 7, 90, 3}, slots = {16, 33, 47, 18, 79};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int head_dim : {8, 10, 64}) {
      const int width = (kQHeads + 2 * kKvHeads) * head_dim;
      RopeConfig config;
      config.head_dim = head_dim;
      config.max_positions = 100;
      const auto rope = single_->MakeRope(config).value();
      const auto pool = single_->MakeKvPool({2, kKvHeads, head_dim, 5, dtype}).value();
      const auto& host = static_cast<const cpu::CpuKvPool&>(*pool);
      const std::vector<float> before = RandomFloats(kRows * width, head_dim);
      std::vector<float> after = before;
      StepPlan plan = PlanOfRows(kRows);
      plan.position = positions;
      plan.slot = slots;
      RunOps(single_.get(), plan, [&](Ops* ops) {
        ops->RopeAndStoreKv(kLayer, *rope, TensorOf(&after, width), pool.get());
      });

      for (int r = 0; r < kRows; ++r) {
        for (int c = 0; c < width; ++c) {
          const int head = c / head_dim, i = c % head_dim, half = head_dim / 2;
          double want = before[r * width + c];
          if (head < kQHeads + kKvHeads) {
            const double angle = positions[r] * std::pow(10000.0, -2.0 * (i % half) / head_dim);
            const double other = before[r * width + head * head_dim + (i + half) % head_dim];
            want = want * std::cos(angle) + (i < half ? -other : other) * std::sin(angle);
          }
          ASSERT_NEAR(after[r * width + c], want, 3e-7)
              << "row " << r << " head " << head << " dim " << i;
          if (head < kQHeads) continue;
          const bool value = head >= kQHeads + kKvHeads;
          const uint8_t* stored = host.Row(kLayer, value, slots[r], (head - kQHeads) % kKvHeads);
          float got;
          if (dtype == DType::kF32) {
            std::memcpy(&got, stored + i * 4, 4);
            ASSERT_EQ(got, after[r * width + c]);
          } else {
            uint16_t bits;
            std::memcpy(&bits, stored + i * 2, 2);
            ASSERT_EQ(bits, FloatToBf16(after[r * width + c]));
          }
        }
      }
    }
  }
}

TEST_P(RopeTest, BitsOfARowDoNotDependOnBatchOrThreads) {
  constexpr int kRows = 64, kHeadDim = 64, kWidth = 16 * kHeadDim;
  RopeConfig config;
  config.head_dim = kHeadDim;
  config.max_positions = kRows;
  const auto rope = single_->MakeRope(config).value();
  const auto pool = single_->MakeKvPool({1, 4, kHeadDim, 5, DType::kF32}).value();
  std::vector<float> batch = RandomFloats(kRows * kWidth, 1);
  std::vector<float> rows = batch;
  StepPlan plan = PlanOfRows(kRows);
  for (int r = 0; r < kRows; ++r) plan.position[r] = kRows - 1 - r, plan.slot[r] = 16 + r;
  RunOps(team_.get(), plan,
         [&](Ops* ops) { ops->RopeAndStoreKv(0, *rope, TensorOf(&batch, kWidth), pool.get()); });
  for (int r = 0; r < kRows; ++r) {
    StepPlan alone = PlanOfRows(1);
    alone.position = {plan.position[r]};
    alone.slot = {plan.slot[r]};
    RunOps(single_.get(), alone, [&](Ops* ops) {
      ops->RopeAndStoreKv(0, *rope, TensorOf(rows.data() + r * kWidth, 1, kWidth), pool.get());
    });
  }
  EXPECT_EQ(batch, rows);
}

COPPICE_ON_ALL_TARGETS(RopeTest);

}  // namespace
}  // namespace coppice::kernels
