// Layers of experts, launch by launch: the experts of a row, the lists of pairs, and the outputs,
// against double precision.
#include "kernels/cuda/ops/experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "sampling/deterministic_math.h"
#include "tests/kernels/cuda/device_memory.h"

namespace coppice::kernels::cuda {
namespace {

using dev::bf16;
using dev::f16;
using testing::ElementsAre;

struct LayerCase {
  int rows = 0;  // of the step, padding included
  int own = 0;   // rows that are no padding
  int experts = 0, chosen = 0;
  int64_t columns = 0, inner = 0;
  bool normalised = true, after_gather = false;
  Activation activation = Activation::kSilu;

  std::string Name() const {
    return testing::PrintToString(std::tuple(rows, own, experts, chosen, columns, inner));
  }
};

// A layer of random values, and what its launches leave. T: of matrices and x.
template <class T>
struct LayerRun {
  explicit LayerRun(const LayerCase& shape)
      : c(shape),
        pairs(c.rows * c.chosen),
        router(RandomValues<T>(c.experts * c.columns, 1)),
        gate_up(RandomValues<T>(c.experts * 2 * c.inner * c.columns, 2)),
        down(RandomValues<T>(c.experts * c.columns * c.inner, 3)),
        x(RandomValues<T>(c.rows * c.columns, 4)),
        step(1),
        gate_up_table(c.experts),
        down_table(c.experts),
        scores(c.rows * c.experts),
        chosen(pairs),
        shares(pairs),
        begin(c.experts + 1),
        used(c.experts + 1),
        source(pairs),
        place(pairs),
        gate_up_out(pairs * 2 * c.inner),
        activated(pairs * c.inner),
        outputs(pairs * c.columns),
        out(c.rows * c.columns) {
    step[0] = DeviceStep();
    // The other number must not be used.
    step[0].rows = c.after_gather ? c.own + 1 : c.own;
    step[0].needs = c.after_gather ? c.own : std::max(0, c.own - 1);
    for (int e = 0; e < c.experts; ++e) {
      gate_up_table[e] = gate_up.data() + e * 2 * c.inner * c.columns;
      down_table[e] = down.data() + e * c.columns * c.inner;
    }
  }

  ExpertsArgs Args() {
    ExpertsArgs args;
    args.router = router.data();
    args.gate_up = gate_up_table.data();
    args.down = down_table.data();
    args.activation = c.activation;
    args.experts = c.experts;
    args.chosen = c.chosen;
    args.normalised = c.normalised;
    args.x = x.data();
    args.out = out.data();
    args.dtype = kTypeOf<T>;
    args.rows = c.rows;
    args.after_gather = c.after_gather;
    args.columns = c.columns;
    args.inner = c.inner;
    args.lists = {scores.data(), chosen.data(), shares.data(), begin.data(),
                  used.data(),   source.data(), place.data()};
    args.gate_up_out = gate_up_out.data();
    args.activated = activated.data();
    args.outputs = outputs.data();
    return args;
  }
  void Launch() {
    const ExpertsArgs args = Args();
    const StepView view = {step.data(), c.rows, c.rows};
    ScoreExperts(view, args, nullptr);
    ChooseExperts(view, args, nullptr);
    ListExperts(view, args, nullptr);
    EnterExperts(args, nullptr);
    Activate(ActivationOf(args), nullptr);
    LeaveExperts(args, nullptr);
    AddShares(view, args, nullptr);
    WaitForDevice();
  }
  // The choice alone, of these scores.
  void Choose(const std::vector<float>& given) {
    std::copy(given.begin(), given.end(), scores.data());
    const StepView view = {step.data(), c.rows, c.rows};
    ChooseExperts(view, Args(), nullptr);
    WaitForDevice();
  }
  std::vector<int32_t> ChosenOf(int row) const {
    return {chosen.data() + row * c.chosen, chosen.data() + (row + 1) * c.chosen};
  }

  const LayerCase c;
  const int64_t pairs;
  DeviceArray<T> router, gate_up, down, x;
  DeviceArray<DeviceStep> step;
  DeviceArray<const void*> gate_up_table, down_table;
  DeviceArray<float> scores;
  DeviceArray<int32_t> chosen;
  DeviceArray<float> shares;
  DeviceArray<int32_t> begin, used, source, place;
  DeviceArray<T> gate_up_out, activated;
  DeviceArray<float> outputs, out;
};

// By the scores that the kernel left: the order of the experts, and their shares, the same bits as
// on the host.
template <class T>
void ExpectChoice(const LayerRun<T>& run) {
  const LayerCase& c = run.c;
  for (int r = 0; r < c.own; ++r) {
    const float* const scores = run.scores.data() + int64_t{r} * c.experts;
    for (int e = 0; e < c.experts; ++e) {
      double want = 0, size = 0;
      for (int64_t i = 0; i < c.columns; ++i) {
        const double term = double{dev::ToFloat(run.x[r * c.columns + i])} *
                            dev::ToFloat(run.router[e * c.columns + i]);
        want += term;
        size += std::abs(term);
      }
      ASSERT_NEAR(scores[e], want, 1e-6 * size) << c.Name() << " row " << r << " expert " << e;
    }
    std::vector<int32_t> order(c.experts);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
    const float largest = scores[order[0]];
    double whole = 0;
    for (int i = 0; i < (c.normalised ? c.chosen : c.experts); ++i)
      whole += sampling::Exp(double{scores[order[i]]} - largest);
    std::vector<int32_t> want(order.begin(), order.begin() + c.chosen);
    std::sort(want.begin(), want.end());
    ASSERT_EQ(run.ChosenOf(r), want) << c.Name() << " row " << r;
    for (int i = 0; i < c.chosen; ++i) {
      const double share = sampling::Exp(double{scores[want[i]]} - largest) / whole;
      // Only the order of the sum differs.
      ASSERT_NEAR(run.shares[r * c.chosen + i], share, 1e-7 * share) << c.Name() << " row " << r;
    }
  }
}

// Each expert has its rows, ascending, one behind the other.
template <class T>
void ExpectLists(const LayerRun<T>& run) {
  const LayerCase& c = run.c;
  int32_t at = 0;
  std::vector<int32_t> used;
  for (int e = 0; e < c.experts; ++e) {
    ASSERT_EQ(run.begin[e], at) << c.Name() << " expert " << e;
    for (int i = 0; i < c.own * c.chosen; ++i) {
      if (run.chosen[i] != e) continue;
      ASSERT_EQ(run.place[i], at) << c.Name() << " pair " << i;
      ASSERT_EQ(run.source[at], i / c.chosen) << c.Name() << " pair " << i;
      ++at;
    }
    if (at > run.begin[e]) used.push_back(e);
  }
  EXPECT_EQ(run.begin[c.experts], c.own * c.chosen);
  ASSERT_EQ(run.used[0], static_cast<int32_t>(used.size())) << c.Name();
  for (size_t i = 0; i < used.size(); ++i) EXPECT_EQ(run.used[1 + i], used[i]) << c.Name();
}

double Activated(Activation f, double x) {
  return f == Activation::kSilu ? x / (1 + std::exp(-x)) : std::max(x, 0.0);
}

// Gates and ups are rounded to T, and what they become.
template <class T>
void ExpectOutputs(const LayerRun<T>& run) {
  const LayerCase& c = run.c;
  const double slack = std::is_same_v<T, float> ? 2e-6 : std::is_same_v<T, bf16> ? 1.2e-2 : 1.5e-3;
  for (int r = 0; r < c.rows; ++r) {
    std::vector<double> want(c.columns), size(c.columns);
    for (int i = 0; r < c.own && i < c.chosen; ++i) {
      const int64_t e = run.chosen[r * c.chosen + i];
      const double share = run.shares[r * c.chosen + i];
      const auto dot = [&](int64_t output) {
        double sum = 0;
        for (int64_t k = 0; k < c.columns; ++k) {
          sum += double{dev::ToFloat(run.x[r * c.columns + k])} *
                 dev::ToFloat(run.gate_up[(e * 2 * c.inner + output) * c.columns + k]);
        }
        return sum;
      };
      for (int64_t j = 0; j < c.inner; ++j) {
        const double gate = dot(j), inner = Activated(c.activation, gate) * dot(c.inner + j);
        for (int64_t o = 0; o < c.columns; ++o) {
          const double w = dev::ToFloat(run.down[(e * c.columns + o) * c.inner + j]);
          want[o] += share * w * inner;
          size[o] += share * std::abs(w) * (std::abs(inner) + 1);
        }
      }
    }
    for (int64_t o = 0; o < c.columns; ++o) {
      ASSERT_NEAR(run.out[r * c.columns + o], want[o], slack * size[o])
          << c.Name() << " row " << r << " column " << o;
    }
  }
}

template <class T>
void TestLayer(const LayerCase& c) {
  LayerRun<T> run(c);
  run.Launch();
  ExpectChoice(run);
  ExpectLists(run);
  ExpectOutputs(run);
}

// Padding and none; few and many rows for an expert, also more than a tile has; shapes that fill no
// tile, and inputs that tensor cores do not take; more experts than lanes; rows behind a gather;
// inputs for all threads of a score.
TEST(CudaExperts, MatchesDoublePrecision) {
  for (const LayerCase& c :
       std::vector<LayerCase>{{1, 1, 5, 2, 40, 24},
                              {8, 5, 40, 3, 72, 16, false},
                              {16, 11, 6, 6, 24, 72, true, true},
                              {24, 24, 3, 2, 37, 21, true, false, Activation::kRelu},
                              {40, 33, 70, 9, 16, 8, false, true},
                              {96, 90, 4, 3, 24, 40},
                              {3, 3, 5, 2, 520, 8},
                              {2, 2, 5, 2, 131, 8}}) {
    TestLayer<float>(c);
    TestLayer<bf16>(c);
    TestLayer<f16>(c);
  }
}

TEST(CudaExperts, OfEqualScoresTheLowerNumber) {
  LayerRun<float> run({2, 2, 5, 2, 4, 4});
  run.Choose({1, 3, 3, 0, 3,  //
              5, -1, 2, 4, -INFINITY});
  EXPECT_THAT(run.ChosenOf(0), ElementsAre(1, 2));
  EXPECT_THAT(run.ChosenOf(1), ElementsAre(0, 3));
  EXPECT_EQ(run.shares[0], 0.5f);
  EXPECT_FLOAT_EQ(run.shares[2], 1 / (1 + std::exp(-1.0f)));
  // Across the lanes of a warp, and where nothing is larger than -infinity.
  LayerRun<float> wide({2, 2, 70, 3, 4, 4});
  std::vector<float> scores(140, -INFINITY);
  for (const int e : {69, 37, 35, 34}) scores[e] = 1;
  wide.Choose(scores);
  EXPECT_THAT(wide.ChosenOf(0), ElementsAre(34, 35, 37));
  EXPECT_THAT(wide.ChosenOf(1), ElementsAre(0, 1, 2));
}

TEST(CudaExperts, WhatIsNotANumberStaysSo) {
  LayerRun<float> run({2, 2, 40, 2, 8, 8});
  run.x[3] = NAN;  // of the first row
  run.Launch();
  EXPECT_THAT(run.ChosenOf(0), ElementsAre(0, 1));
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(std::isnan(run.out[i])) << i;
    EXPECT_TRUE(std::isfinite(run.out[8 + i])) << i;
  }
}

// A step of 90 rows, and what some of them get in smaller steps.
template <class T>
void ExpectRowsOfTheirOwn(int64_t columns, int64_t inner) {
  const LayerCase c = {96, 90, 6, 3, columns, inner};
  LayerRun<T> whole(c);
  whole.Launch();
  for (const auto& [first, rows] : std::vector<std::pair<int, int>>{{0, 1}, {13, 7}, {40, 35}}) {
    LayerRun<T> part({rows, rows, c.experts, c.chosen, columns, inner});
    for (int64_t i = 0; i < rows * columns; ++i) part.x[i] = whole.x[first * columns + i];
    part.Launch();
    for (int64_t i = 0; i < rows * columns; ++i) {
      ASSERT_EQ(std::memcmp(&part.out[i], &whole.out[first * columns + i], sizeof(float)), 0)
          << part.c.Name() << " at " << i;
    }
  }
}

TEST(CudaExperts, ARowDependsOnItselfAlone) {
  ExpectRowsOfTheirOwn<bf16>(136, 72);
  ExpectRowsOfTheirOwn<f16>(40, 136);
  ExpectRowsOfTheirOwn<bf16>(37, 21);  // by the plain kernel
  ExpectRowsOfTheirOwn<float>(72, 40);
}

}  // namespace
}  // namespace coppice::kernels::cuda
