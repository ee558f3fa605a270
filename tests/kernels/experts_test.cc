// Layers of experts: routing, and the sum over the experts of a row against double precision.
#include "kernels/cpu/experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/kernels/kernel_fixture.h"

namespace coppice::kernels {
namespace {

using testing::ElementsAre;

TEST(RouteRowsTest, TakesTheLargestScoresAndOfEqualsTheFirst) {
  const float scores[] = {1, 3,  3, 0, 3,  //
                          5, -1, 2, 4, -INFINITY};
  const auto routes = cpu::RouteRows(scores, 2, 5, 2, /*normalised=*/true);
  const auto rows = [&](int expert) {
    std::vector<int64_t> list;
    for (const cpu::ExpertShare& share : routes[expert]) list.push_back(share.row);
    return list;
  };
  EXPECT_THAT(rows(0), ElementsAre(1));
  EXPECT_THAT(rows(1), ElementsAre(0));
  EXPECT_THAT(rows(2), ElementsAre(0));
  EXPECT_THAT(rows(3), ElementsAre(1));
  EXPECT_THAT(rows(4), ElementsAre());
  EXPECT_FLOAT_EQ(routes[1][0].share, 0.5f);
  EXPECT_FLOAT_EQ(routes[0][0].share, 1 / (1 + std::exp(-1.0f)));
  // Without the division a share is that of the softmax over all experts.
  const auto plain = cpu::RouteRows(scores, 1, 5, 2, /*normalised=*/false);
  EXPECT_FLOAT_EQ(plain[1][0].share, std::exp(3.0f) / (std::exp(1.0f) + 1 + 3 * std::exp(3.0f)));
}

TEST(RouteRowsTest, WhatIsNotANumberStaysSo) {
  const float scores[] = {1, NAN, 3};
  const auto routes = cpu::RouteRows(scores, 1, 3, 2, true);
  int found = 0;
  for (const auto& of_expert : routes) {
    for (const cpu::ExpertShare& share : of_expert) {
      EXPECT_TRUE(std::isnan(share.share));
      ++found;
    }
  }
  EXPECT_EQ(found, 2);
}

class ExpertsTest : public KernelTest {
 protected:
  static constexpr int64_t kHidden = 37, kSize = 21, kExperts = 7;
  static constexpr int kChosen = 3;

  ExpertsTest() {
    router_ = RandomFloats(kExperts * kHidden, 1);
    for (int64_t e = 0; e < kExperts; ++e) {
      gate_up_.push_back(RandomFloats(2 * kSize * kHidden, 10 + e));
      down_.push_back(RandomFloats(kHidden * kSize, 30 + e));
    }
  }
  std::vector<float> Mix(Backend* backend, float* x, int64_t rows) const {
    const auto pack = [backend](const std::vector<float>& values, int64_t outputs,
                                int64_t columns) {
      return PackOne(backend, {values.data(), DType::kF32, outputs, columns, columns}, DType::kF32);
    };
    std::vector<std::unique_ptr<Weight>> gate_up, down;
    for (int64_t e = 0; e < kExperts; ++e) {
      gate_up.push_back(pack(gate_up_[e], 2 * kSize, kHidden));
      down.push_back(pack(down_[e], kHidden, kSize));
    }
    const auto router = pack(router_, kExperts, kHidden);
    std::vector<float> out(rows * kHidden, NAN);
    RunOps(backend, PlanOfRows(rows), [&](Ops* ops) {
      ops->MixExperts({router.get(), gate_up, down, Activation::kSilu, kChosen, true},
                      TensorOf(x, rows, kHidden), TensorOf(&out, kHidden));
    });
    return out;
  }
  std::vector<double> Expected(const float* x) const {
    const auto dot = [](const float* w, const auto* v, int64_t n) {
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += double{w[i]} * v[i];
      return sum;
    };
    std::vector<std::pair<double, int64_t>> order;
    for (int64_t e = 0; e < kExperts; ++e)
      order.emplace_back(-dot(&router_[e * kHidden], x, kHidden), e);
    std::sort(order.begin(), order.end());
    double total = 0;
    for (int i = 0; i < kChosen; ++i) total += std::exp(-order[i].first);
    std::vector<double> out(kHidden);
    for (int i = 0; i < kChosen; ++i) {
      const int64_t e = order[i].second;
      std::vector<double> inner(kSize);
      for (int64_t j = 0; j < kSize; ++j) {
        const double gate = dot(&gate_up_[e][j * kHidden], x, kHidden);
        inner[j] =
            gate / (1 + std::exp(-gate)) * dot(&gate_up_[e][(kSize + j) * kHidden], x, kHidden);
      }
      for (int64_t j = 0; j < kHidden; ++j)
        out[j] +=
            std::exp(-order[i].first) / total * dot(&down_[e][j * kSize], inner.data(), kSize);
    }
    return out;
  }

  std::vector<float> router_;
  std::vector<std::vector<float>> gate_up_, down_;
};

TEST_P(ExpertsTest, MixesAsDoublePrecisionDoes) {
  std::vector<float> x = RandomFloats(20 * kHidden, 2);
  const std::vector<float> out = Mix(single_.get(), x.data(), 20);
  for (int64_t r = 0; r < 20; ++r) {
    const std::vector<double> want = Expected(&x[r * kHidden]);
    for (int64_t i = 0; i < kHidden; ++i)
      ASSERT_NEAR(out[r * kHidden + i], want[i], 2e-5) << r << " " << i;
  }
}

TEST_P(ExpertsTest, BitsOfARowDoNotDependOnBatchOrThreads) {
  constexpr int64_t kRows = 90;
  std::vector<float> x = RandomFloats(kRows * kHidden, 3);
  const std::vector<float> all = Mix(team_.get(), x.data(), kRows);
  for (int64_t r = 0; r < kRows; ++r) {
    const std::vector<float> alone = Mix(single_.get(), x.data() + r * kHidden, 1);
    ASSERT_EQ(std::memcmp(alone.data(), &all[r * kHidden], kHidden * sizeof(float)), 0) << r;
  }
}

COPPICE_ON_ALL_TARGETS(ExpertsTest);

}  // namespace
}  // namespace coppice::kernels
