#include "kernels/cuda/ops/block_product.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

#include "kernels/cuda/ops/launch.h"
#include "kernels/cuda/ops/row_product.h"
#include "tests/kernels/cuda/device_blocks.h"
#include "tests/kernels/cuda/product_check.h"

namespace coppice::kernels::cuda {
namespace {

using dev::bf16;
using dev::f16;

constexpr DType kFormats[] = {DType::kQ8_0, DType::kQ4_0};

struct BlockCase {
  DType format = DType::kQ8_0;
  int rows = 0;
  int64_t outputs = 0, inputs = 0;
  bool accumulate = false, bias = false;
  size_t partial_bytes = size_t{1} << 20;

  std::string Name() const {
    return std::string(format == DType::kQ8_0 ? "Q8_0, " : "Q4_0, ") + std::to_string(rows) +
           " rows, " + std::to_string(outputs) + " x " + std::to_string(inputs) +
           (accumulate ? ", added" : "") + (bias ? ", bias" : "");
  }
};

// What one product reads and leaves. T: of the values of w and of x, Y: of y.
template <class T, class Y>
struct BlockRun {
  explicit BlockRun(const BlockCase& shape)
      : c(shape),
        blocks(c.format, c.outputs, c.inputs, c.outputs * 31 + c.inputs),
        w(blocks.Values<T>()),
        x(RandomValues<T>(c.rows * c.inputs, c.inputs)),
        before(RandomValues<Y>(c.rows * c.outputs, 5)),
        bias(RandomValues<float>(c.outputs, 6)),
        y(c.rows * c.outputs),
        partials(std::max<size_t>(1, c.partial_bytes / sizeof(float))),
        counters(std::vector<uint32_t>(64)) {}

  // Args: of BlockProduct or RowProduct.
  template <class Args>
  void SetShared(Args* args) {
    if (c.accumulate) std::copy(before.begin(), before.end(), y.data());
    args->x = x.data();
    args->y = y.data();
    args->bias = c.bias ? bias.data() : nullptr;
    args->type = kTypeOf<T>;
    args->y_type = kTypeOf<Y>;
    args->rows = c.rows;
    args->outputs = c.outputs;
    args->inputs = c.inputs;
    args->accumulate = c.accumulate;
    args->partials = partials.data();
    args->partial_bytes = c.partial_bytes;
    args->counters = counters.data();
    args->counter_count = 64;
  }
  BlockProductArgs Args() {
    BlockProductArgs args;
    SetShared(&args);
    args.w = blocks.data();
    args.w_type = c.format;
    return args;
  }
  void Launch() {
    BlockProduct(Args(), nullptr);
    WaitForDevice();
  }
  void LaunchRowProduct() {
    RowProductArgs args;
    SetShared(&args);
    args.w = w.data();
    RowProduct(args, nullptr);
    WaitForDevice();
  }

  const BlockCase c;
  const DeviceBlocks blocks;
  const DeviceArray<T> w;  // values of the blocks
  DeviceArray<T> x;
  const std::vector<Y> before;
  DeviceArray<float> bias;
  DeviceArray<Y> y;
  DeviceArray<float> partials;
  DeviceArray<uint32_t> counters;
};

// Near the sums in double precision, and with the bits of the product with a matrix of the values.
template <class T, class Y>
void TestBlocks(const BlockCase& c) {
  BlockRun<T, Y> run(c);
  run.Launch();
  ExpectProduct(run);
  const std::vector<Y> got = run.y.Copy();
  run.LaunchRowProduct();
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(std::memcmp(&got[i], &run.y[i], sizeof(Y)), 0) << c.Name() << " at " << i;
}

// One run of inputs and several; shapes that fill no tile, no stage and no unit.
TEST(CudaBlockProduct, HasTheBitsOfAProductWithTheValues) {
  ASSERT_GT(ProductRuns(72, 584), 1);
  for (const DType format : kFormats) {
    for (const int rows : {1, 8, 9, 17, 40, 65, 130}) {
      for (const auto& [outputs, inputs] :
           std::vector<std::pair<int64_t, int64_t>>{{8, 8}, {71, 40}, {72, 584}, {130, 192}}) {
        TestBlocks<bf16, bf16>({format, rows, outputs, inputs});
        TestBlocks<bf16, float>({format, rows, outputs, inputs});
      }
    }
    TestBlocks<f16, f16>({format, 3, 72, 584});
    TestBlocks<f16, float>({format, 66, 40, 72});
  }
}

TEST(CudaBlockProduct, AddsAndHasABias) {
  for (const DType format : kFormats) {
    for (const bool bias : {false, true}) {
      TestBlocks<bf16, float>({format, 5, 72, 520, true, bias});
      TestBlocks<f16, f16>({format, 70, 24, 64, true, bias});
    }
  }
}

// A block that has no room to leave its sums adds all runs itself, in the same order.
TEST(CudaBlockProduct, WithoutRoomForSumsOfRuns) {
  TestBlocks<bf16, float>({DType::kQ8_0, 9, 72, 584, true, true, 0});
  TestBlocks<bf16, bf16>({DType::kQ4_0, 9, 72, 584, false, true, 0});
}

// x = 1 at one input of each row: y is that input's values, exactly. All codes occur.
TEST(CudaBlockProduct, EveryCodeIsScaleTimesCodeRounded) {
  constexpr int kInputs = 128;
  for (const DType format : kFormats) {
    BlockRun<bf16, float> run({format, kInputs, 48, kInputs});
    for (int r = 0; r < kInputs; ++r) {
      for (int k = 0; k < kInputs; ++k)
        run.x[r * kInputs + k] = dev::FromFloat<bf16>(r == k ? 1.0f : 0.0f);
    }
    run.Launch();
    std::set<float> all;
    for (int64_t output = 0; output < 48; ++output) {
      for (int r = 0; r < kInputs; ++r) {
        const float want = dev::ToFloat(run.w[output * kInputs + r]);
        ASSERT_EQ(run.y[r * 48 + output], want) << run.c.Name() << ": " << output << ", " << r;
        all.insert(want);
      }
    }
    EXPECT_GT(all.size(), 1000u);
  }
}

// The gated product has the bits of the product and SwiGLU behind it.
template <class T>
void TestGated(const BlockCase& c) {
  BlockRun<T, T> run(c);
  run.Launch();
  const int64_t half = c.outputs / 2;
  DeviceArray<T> want(c.rows * half), got(c.rows * half);
  Activate({Activation::kSilu, /*gated=*/true, run.y.data(), want.data(), kTypeOf<T>, c.rows, half},
           nullptr);
  BlockProductArgs args = run.Args();
  ASSERT_TRUE(CanGateBlocks(args.type, args.y_type, args.outputs));
  args.y = got.data();
  args.gated = true;
  BlockProduct(args, nullptr);
  WaitForDevice();
  for (int64_t i = 0; i < c.rows * half; ++i)
    ASSERT_EQ(dev::BitsOf(got[i]), dev::BitsOf(want[i])) << c.Name() << " at " << i;
  for (size_t i = 0; i < run.counters.size(); ++i) ASSERT_EQ(run.counters[i], 0u) << c.Name();
}

TEST(CudaBlockProduct, GatedAsByTwoLaunches) {
  for (const DType format : kFormats) {
    for (const int rows : {1, 34, 70}) {
      for (const int64_t outputs : {32, 160}) {
        TestGated<bf16>({format, rows, outputs, 200, false, rows % 2 == 1});
        TestGated<f16>({format, rows, outputs, 520, false, rows % 2 == 0});
      }
    }
  }
}

// Few values, for tests that also run under the thread sanitizer and in many orders.
TEST(CudaBlockProduct, RunsOfALongRow) {
  BlockRun<bf16, float> run({DType::kQ4_0, 9, 72, 12 * 64 + 8, true, true});
  ASSERT_GT(ProductRuns(72, 12 * 64 + 8), 1);
  run.Launch();
  ExpectProduct(run);
  const std::vector<float> first = run.y.Copy();
  for (int again = 0; again < 2; ++again) {  // the counters are as before
    run.Launch();
    EXPECT_EQ(std::memcmp(first.data(), run.y.data(), first.size() * sizeof(float)), 0);
  }
}

// Runs of more stages than there are at a time, which take each other's place.
TEST(CudaBlockProduct, OneRunOfALongRow) {
  constexpr int64_t kInputs = 95 * 64 + 8;  // eight runs of twelve units
  ASSERT_EQ(ProductRuns(24, kInputs), 8);
  TestBlocks<bf16, bf16>({DType::kQ8_0, 9, 24, kInputs, true, true, 0});
  TestBlocks<bf16, float>({DType::kQ4_0, 20, 24, kInputs, false, true});
}

// The bits of a row are those that it has alone, whatever the other rows hold.
TEST(CudaBlockProduct, ARowDependsOnItselfAlone) {
  constexpr int kMost = 150;
  BlockRun<bf16, float> whole({DType::kQ8_0, kMost, 72, 456, true, true});
  whole.Launch();
  for (const int rows : {1, 9, 16, 32, 64, 65}) {
    BlockRun<bf16, float> part({DType::kQ8_0, rows, 72, 456, true, true});
    for (int64_t i = 0; i < rows * 456; ++i) part.x[i] = whole.x[i];
    if (rows > 1) part.x[0] = __float2bfloat16_rn(NAN);  // spoils the first row alone
    part.Launch();
    for (int64_t i = rows > 1 ? 72 : 0; i < rows * 72; ++i) ASSERT_EQ(part.y[i], whole.y[i]) << i;
  }
}

}  // namespace
}  // namespace coppice::kernels::cuda
