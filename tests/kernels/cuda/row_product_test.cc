#include "kernels/cuda/ops/row_product.h"

#include <gtest/gtest.h>

#include "tests/kernels/cuda/device_memory.h"
#include "tests/kernels/cuda/product_check.h"

namespace coppice::kernels::cuda {
namespace {

using dev::bf16;
using dev::f16;

struct ProductCase {
  int rows = 0;
  int64_t outputs = 0, inputs = 0;
  bool accumulate = false, bias = false;
  size_t partial_bytes = size_t{1} << 20;

  std::string Name() const {
    return std::to_string(rows) + " rows, " + std::to_string(outputs) + " x " +
           std::to_string(inputs) + (accumulate ? ", added" : "") + (bias ? ", bias" : "");
  }
};

// What one product reads and leaves. T: of w and x, Y: of y.
template <class T, class Y>
struct ProductRun {
  explicit ProductRun(const ProductCase& shape)
      : c(shape),
        w(RandomValues<T>(c.outputs * c.inputs, c.outputs * 31 + c.inputs)),
        x(RandomValues<T>(c.rows * c.inputs, c.inputs)),
        before(RandomValues<Y>(c.rows * c.outputs, 5)),
        bias(RandomValues<float>(c.outputs, 6)),
        y(c.rows * c.outputs),
        partials(std::max<size_t>(1, c.partial_bytes / sizeof(float))),
        counters(std::vector<uint32_t>(64)) {}

  void Launch() {
    if (c.accumulate) std::copy(before.begin(), before.end(), y.data());
    RowProductArgs args;
    args.w = w.data();
    args.x = x.data();
    args.y = y.data();
    args.bias = c.bias ? bias.data() : nullptr;
    args.type = kTypeOf<T>;
    args.y_type = kTypeOf<Y>;
    args.rows = c.rows;
    args.outputs = c.outputs;
    args.inputs = c.inputs;
    args.accumulate = c.accumulate;
    args.partials = partials.data();
    args.partial_bytes = c.partial_bytes;
    args.counters = counters.data();
    args.counter_count = 64;
    RowProduct(args, nullptr);
    WaitForDevice();
  }

  const ProductCase c;
  DeviceArray<T> w, x;
  const std::vector<Y> before;
  DeviceArray<float> bias;
  DeviceArray<Y> y;
  DeviceArray<float> partials;
  DeviceArray<uint32_t> counters;
};

template <class T, class Y>
void TestProduct(const ProductCase& c) {
  ProductRun<T, Y> run(c);
  run.Launch();
  ExpectProduct(run);
}

// One run of inputs and several; shapes that fill no tile, and inputs that tensor cores do not take.
TEST(CudaRowProduct, MatchesDoublePrecision) {
  ASSERT_GT(ProductRuns(72, 528), 1);
  for (const int rows : {1, 8, 9, 17, 40, 65, 130}) {
    for (const auto& [outputs, inputs] :
         std::vector<std::pair<int64_t, int64_t>>{{8, 8}, {71, 24}, {72, 528}, {13, 31}}) {
      TestProduct<bf16, bf16>({rows, outputs, inputs});
      TestProduct<bf16, float>({rows, outputs, inputs});
    }
  }
  for (const int rows : {3, 66}) {
    for (const int64_t inputs : {64, 70, 528}) {
      TestProduct<f16, f16>({rows, 72, inputs});
      TestProduct<float, float>({rows, 72, inputs});
    }
  }
}

TEST(CudaRowProduct, AddsAndHasABias) {
  for (const int rows : {5, 70}) {
    for (const bool bias : {false, true}) {
      TestProduct<bf16, float>({rows, 72, 520, true, bias});
      TestProduct<f16, f16>({rows, 24, 64, true, bias});
      TestProduct<float, float>({rows, 72, 100, true, bias});
    }
  }
}

// A step of `most` rows, and what its first rows get in smaller steps and beside other rows.
template <class T, class Y>
void ExpectRowsOfTheirOwn(int64_t outputs, int64_t inputs) {
  constexpr int kMost = 150;
  ProductRun<T, Y> whole({kMost, outputs, inputs, true, true});
  whole.Launch();
  for (const int rows : {1, 7, 16, 32, 64, 65}) {
    ProductRun<T, Y> part({rows, outputs, inputs, true, true});
    for (int64_t i = 0; i < rows * inputs; ++i) part.x[i] = whole.x[i];
    if (rows > 1) part.x[0] = dev::FromFloat<T>(NAN);  // spoils the first row alone
    part.Launch();
    for (int64_t i = rows > 1 ? outputs : 0; i < rows * outputs; ++i)
      ASSERT_EQ(std::memcmp(&part.y[i], &whole.y[i], sizeof(Y)), 0) << part.c.Name() << " at " << i;
  }
}

TEST(CudaRowProduct, ARowDependsOnItselfAlone) {
  ExpectRowsOfTheirOwn<bf16, float>(72, 1032);  // four runs
  ExpectRowsOfTheirOwn<f16, f16>(200, 600);     // two runs
  ExpectRowsOfTheirOwn<bf16, bf16>(72, 90);     // by the plain kernel
  ExpectRowsOfTheirOwn<float, float>(72, 300);
}

// Blocks that share a tile, and one block for all of its runs, where there is no room to meet.
TEST(CudaRowProduct, RoomToMeetChangesNoBit) {
  for (const int rows : {3, 70}) {
    ProductRun<bf16, float> together({rows, 72, 1032}), alone({rows, 72, 1032, false, false, 0});
    ASSERT_GT(ProductRuns(72, 1032), 2);
    together.Launch();
    alone.Launch();
    ExpectProduct(alone);
    EXPECT_EQ(std::memcmp(together.y.data(), alone.y.data(), alone.y.size() * sizeof(float)), 0);
  }
}

// Sums whose value depends on the order of the runs: 2^24, 1 and -2^24.
TEST(CudaRowProduct, RunsAreAddedInOrder) {
  constexpr int kRuns = 4, kInputs = kRuns * 4 * kRunUnit;
  ASSERT_EQ(ProductRuns(64, kInputs), kRuns);
  const float parts[kRuns] = {16777216.0f, 1.0f, -16777216.0f, 1.0f};
  for (const int rows : {3, 70}) {
    ProductRun<bf16, float> run({rows, 64, kInputs});
    for (int64_t k = 0; k < kInputs; ++k) {
      const bool first = k % (4 * kRunUnit) == 0;
      for (int64_t r = 0; r < rows; ++r) run.x[r * kInputs + k] = __float2bfloat16_rn(first);
      for (int64_t n = 0; n < 64; ++n)
        run.w[n * kInputs + k] = __float2bfloat16_rn(first ? parts[k / (4 * kRunUnit)] : 0);
    }
    run.Launch();
    for (size_t i = 0; i < run.y.size(); ++i) ASSERT_EQ(run.y[i], 1.0f) << i;
  }
}

}  // namespace
}  // namespace coppice::kernels::cuda
