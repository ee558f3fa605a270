#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/kv_pool.h"
#include "kernels/element.h"
#include "kernels/rope_table.h"
#include "tests/kernels/kernel_fixture.h"

namespace coppice::kernels {
namespace {

TEST(RopeTableTest, HoldsScaledCosinesAndSinesOfEachPosition) {
  RopeConfig config;
  config.frequencies = {1.0, 0.25};
  config.max_positions = 9;
  config.scale = 1.5;
  const HostRopeTable table = BuildRopeTable(config);
  EXPECT_EQ(table.rotary_dim, 4);
  for (int position = 0; position < 9; ++position) {
    for (int i = 0; i < 2; ++i) {
      const double angle = position * config.frequencies[i];
      EXPECT_EQ(table.cos[position * 2 + i], static_cast<float>(1.5 * std::cos(angle)));
      EXPECT_EQ(table.sin[position * 2 + i], static_cast<float>(1.5 * std::sin(angle)));
    }
  }
}

class RopeTest : public KernelTest {};

// Every combination of head norms and of dimensions that rotate.
TEST_P(RopeTest, NormsRotatesAndStoresKAndV) {
  constexpr int kQHeads = 4, kKvHeads = 2, kRows = 5, kLayer = 1;
  constexpr float kEpsilon = 1e-5f;
  const std::vector<int32_t> positions = {0, 1, 7, 90, 3}, slots = {16, 33, 47, 18, 79};
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
    for (const auto& [head_dim, rotary_dim] :
         {std::pair(8, 8), std::pair(10, 10), std::pair(64, 64), std::pair(64, 16),
          std::pair(24, 18), std::pair(64, 0)}) {
      for (const bool normed : {false, true}) {
        const int width = (kQHeads + 2 * kKvHeads) * head_dim;
        std::shared_ptr<const RopeTable> rope;
        if (rotary_dim > 0)
          rope = single_->MakeRope({100, PlainFrequencies(rotary_dim, 10000)}).value();
        const std::vector<float> gains[2] = {RandomFloats(head_dim, 5), RandomFloats(head_dim, 6)};
        const auto q_gain = single_->PackGain(gains[0]).value();
        const auto k_gain = single_->PackGain(gains[1]).value();
        HeadSteps steps;
        steps.rope = rope.get();
        if (normed) {
          steps.q_norm = {q_gain.get(), NormKind::kRms, kEpsilon};
          steps.k_norm = {k_gain.get(), NormKind::kRms, kEpsilon};
        }
        const auto pool = single_->MakeKvPool({2, kKvHeads, head_dim, 5, dtype}).value();
        const auto& host = static_cast<const cpu::CpuKvPool&>(*pool);
        const std::vector<float> before = RandomFloats(kRows * width, head_dim);
        std::vector<float> after = before;
        StepPlan plan = PlanOfRows(kRows);
        plan.position = positions;
        plan.slot = slots;
        RunOps(single_.get(), plan, [&](Ops* ops) {
          ops->RopeAndStoreKv(kLayer, steps, TensorOf(&after, width), pool.get());
        });

        for (int r = 0; r < kRows; ++r) {
          for (int c = 0; c < width; ++c) {
            const int head = c / head_dim, i = c % head_dim, half = rotary_dim / 2;
            const float* const of = before.data() + r * width + head * head_dim;
            const bool is_v = head >= kQHeads + kKvHeads;
            double scale = 1;
            if (normed && !is_v) {
              double squares = 0;
              for (int j = 0; j < head_dim; ++j) squares += double{of[j]} * of[j];
              scale = 1 / std::sqrt(squares / head_dim + kEpsilon);
            }
            const auto at = [&](int j) {
              return of[j] * scale * (normed && !is_v ? gains[head >= kQHeads][j] : 1.0f);
            };
            double want = at(i);
            if (!is_v && i < rotary_dim) {
              const double angle = positions[r] * std::pow(10000.0, -2.0 * (i % half) / rotary_dim);
              const double other = at((i + half) % rotary_dim);
              want = want * std::cos(angle) + (i < half ? -other : other) * std::sin(angle);
            }
            ASSERT_NEAR(after[r * width + c], want, normed ? 1e-6 : 3e-7)
                << "row " << r << " head " << head << " dim " << i << " of " << head_dim;
            if (head < kQHeads) continue;
            const uint8_t* stored = host.Row(kLayer, is_v, slots[r], (head - kQHeads) % kKvHeads);
            if (dtype == DType::kF32) {
              float got;
              std::memcpy(&got, stored + i * 4, 4);
              ASSERT_EQ(got, after[r * width + c]);
            } else if (dtype == DType::kI8) {
              const float* const vector = after.data() + r * width + head * head_dim;
              float largest = 0;
              for (int j = 0; j < head_dim; ++j) largest = std::max(largest, std::abs(vector[j]));
              const float scale = *host.Scale(kLayer, is_v, slots[r], (head - kQHeads) % kKvHeads);
              ASSERT_EQ(scale, largest / 127);
              ASSERT_EQ(static_cast<int8_t>(stored[i]), std::nearbyint(vector[i] / scale));
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
}

// Zeros, ties, subnormal numbers, and what is not finite: by their places in the vector, which the
// instruction sets divide differently.
TEST_P(RopeTest, CodesOfEveryKindOfVector) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const int dim : {1, 7, 8, 10, 64}) {
    const auto pool = single_->MakeKvPool({1, 1, dim, 3, DType::kI8}).value();
    const auto& host = static_cast<const cpu::CpuKvPool&>(*pool);
    // The scale and the codes of a V.
    const auto store = [&](const std::vector<float>& v) {
      std::vector<float> row(2 * dim, 1.0f);
      row.insert(row.end(), v.begin(), v.end());
      StepPlan plan = PlanOfRows(1);
      plan.slot = {37};
      std::memset(host.Row(0, /*value=*/true, 37, 0), 0x55, dim);
      RunOps(single_.get(), plan,
             [&](Ops* ops) { ops->RopeAndStoreKv(0, {}, TensorOf(&row, 3 * dim), pool.get()); });
      const auto* const codes = reinterpret_cast<const int8_t*>(host.Row(0, true, 37, 0));
      return std::pair(*host.Scale(0, true, 37, 0), std::vector<int8_t>(codes, codes + dim));
    };
    const std::vector<int8_t> zeros(dim, 0);
    const std::vector<float> ties = {127.0f, 0.5f, 1.5f, -0.5f, -1.5f, 2.5f, -126.5f, 126.5f};
    const std::vector<int> even = {127, 0, 2, 0, -2, 2, -126, 126};
    for (int place = 0; place < dim; ++place) {
      std::vector<float> v(dim, 0.0f);
      EXPECT_EQ(store(v), std::pair(0.0f, zeros));
      v[place] = 1e-37f;  // its scale would be subnormal
      EXPECT_EQ(store(v), std::pair(0.0f, zeros));
      std::vector<int8_t> want = zeros;
      v[place] = -0x1p-119f;
      want[place] = -127;
      EXPECT_EQ(store(v), std::pair(0x1p-119f / 127, want));
      v[place] = std::numeric_limits<float>::max();
      want[place] = 127;
      EXPECT_EQ(store(v), std::pair(std::numeric_limits<float>::max() / 127, want));
      for (const float bad : {kInfinity, -kInfinity, NAN, -NAN}) {
        std::vector<float> values(dim, 3.0f);
        values[place] = bad;
        const auto [scale, codes] = store(values);
        EXPECT_TRUE(std::isnan(scale)) << place;
        EXPECT_EQ(codes, zeros);
      }
      for (int i = 0; i < dim; ++i) v[(place + i) % dim] = ties[i % 8];
      for (int i = 0; i < dim; ++i) want[(place + i) % dim] = static_cast<int8_t>(even[i % 8]);
      EXPECT_EQ(store(v), std::pair(1.0f, want)) << place;
    }
  }
}

TEST_P(RopeTest, NormsAllHeadsTogether) {
  constexpr int kDim = 24;
  const std::vector<float> gains[2] = {RandomFloats(3 * kDim, 5), RandomFloats(kDim, 6)};
  const auto q_gain = single_->PackGain(gains[0]).value();
  const auto k_gain = single_->PackGain(gains[1]).value();
  const HeadSteps steps = {{q_gain.get(), NormKind::kRms, 1e-6f},
                           {k_gain.get(), NormKind::kRms, 1e-6f}};
  const auto pool = single_->MakeKvPool({1, 1, kDim, 3, DType::kF32}).value();
  const std::vector<float> before = RandomFloats(5 * kDim, 1);  // 3 q heads, k, v
  std::vector<float> after = before;
  RunOps(single_.get(), PlanOfRows(1),
         [&](Ops* ops) { ops->RopeAndStoreKv(0, steps, TensorOf(&after, 5 * kDim), pool.get()); });
  double squares[2] = {};
  for (int i = 0; i < 4 * kDim; ++i) squares[i >= 3 * kDim] += double{before[i]} * before[i];
  for (int i = 0; i < 4 * kDim; ++i) {
    const bool k = i >= 3 * kDim;
    const double scale = 1 / std::sqrt(squares[k] / gains[k].size() + 1e-6);
    ASSERT_NEAR(after[i], before[i] * scale * gains[k][k ? i - 3 * kDim : i], 1e-6) << i;
  }
  for (int i = 4 * kDim; i < 5 * kDim; ++i) EXPECT_EQ(after[i], before[i]);
}

TEST_P(RopeTest, BitsOfARowDoNotDependOnBatchOrThreads) {
  constexpr int kRows = 64, kHeadDim = 64, kWidth = 16 * kHeadDim;
  const auto rope = single_->MakeRope({kRows, PlainFrequencies(kHeadDim, 10000)}).value();
  const auto gain = single_->PackGain(RandomFloats(kHeadDim, 7)).value();
  const Norm norm = {gain.get(), NormKind::kRms, 1e-6f};
  const HeadSteps steps = {norm, norm, rope.get()};
  const auto pool = single_->MakeKvPool({1, 4, kHeadDim, 5, DType::kF32}).value();
  std::vector<float> batch = RandomFloats(kRows * kWidth, 1);
  std::vector<float> rows = batch;
  StepPlan plan = PlanOfRows(kRows);
  for (int r = 0; r < kRows; ++r) plan.position[r] = kRows - 1 - r, plan.slot[r] = 16 + r;
  RunOps(team_.get(), plan,
         [&](Ops* ops) { ops->RopeAndStoreKv(0, steps, TensorOf(&batch, kWidth), pool.get()); });
  for (int r = 0; r < kRows; ++r) {
    StepPlan alone = PlanOfRows(1);
    alone.position = {plan.position[r]};
    alone.slot = {plan.slot[r]};
    RunOps(single_.get(), alone, [&](Ops* ops) {
      ops->RopeAndStoreKv(0, steps, TensorOf(rows.data() + r * kWidth, 1, kWidth), pool.get());
    });
  }
  EXPECT_EQ(batch, rows);
}

COPPICE_ON_ALL_TARGETS(RopeTest);

}  // namespace
}  // namespace coppice::kernels
