#include "kernels/cuda/ops/gemm_skinny.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kernels/cuda/ops/launch.h"
#include "tests/kernels/cuda/device_memory.h"
#include "tests/kernels/cuda/product_check.h"

namespace coppice::kernels::cuda {
namespace {

using dev::bf16;

struct SkinnyCase {
  int rows = 0;
  int64_t outputs = 0, inputs = 0;
  int splits = 1;
  bool accumulate = false, bias = false;
  bool clustered = false;

  std::string Name() const {
    return testing::PrintToString(rows) + " rows, " + std::to_string(outputs) + " x " +
           std::to_string(inputs) + ", " + std::to_string(splits) + " splits" +
           (accumulate ? ", added" : "") + (bias ? ", bias" : "") +
           (clustered ? ", clustered" : "");
  }
};

// What one product reads and leaves.
template <class T>
struct SkinnyRun {
  explicit SkinnyRun(const SkinnyCase& shape)
      : c(shape),
        w(RandomValues<bf16>(c.outputs * c.inputs, c.outputs * 31 + c.inputs)),
        x(RandomValues<bf16>(c.rows * c.inputs, c.rows * 17 + c.inputs)),
        before(RandomValues<T>(c.rows * c.outputs, 5)),
        bias(RandomValues<float>(c.outputs, 6)),
        y(c.rows * c.outputs),
        partials(
            std::max<size_t>(1, SkinnyPartialBytes(c.rows, c.outputs, c.splits) / sizeof(float))),
        counters(std::vector<uint32_t>(SkinnyTiles(c.outputs))) {}

  SkinnyArgs Args() {
    SkinnyArgs args;
    args.w = w.data();
    args.x = x.data();
    args.y = y.data();
    args.bias = c.bias ? bias.data() : nullptr;
    args.y_type = kTypeOf<T>;
    args.rows = c.rows;
    args.outputs = c.outputs;
    args.inputs = c.inputs;
    args.accumulate = c.accumulate;
    args.splits = c.splits;
    args.clustered = c.clustered;
    args.partials = c.splits == 1 || c.clustered ? nullptr : partials.data();
    args.counters = c.splits == 1 || c.clustered ? nullptr : counters.data();
    return args;
  }

  void Launch() {
    if (c.accumulate) std::copy(before.begin(), before.end(), y.data());
    GemmSkinny(Args(), nullptr);
    WaitForDevice();
  }

  const SkinnyCase c;
  DeviceArray<bf16> w, x;
  const std::vector<T> before;
  DeviceArray<float> bias;
  DeviceArray<T> y;
  DeviceArray<float> partials;
  DeviceArray<uint32_t> counters;
};

template <class T>
void TestSkinny(const SkinnyCase& c) {
  SkinnyRun<T> run(c);
  run.Launch();
  ExpectProduct(run);
}

// The gated product has the bits of the product and SwiGLU behind it.
void TestGated(const SkinnyCase& c) {
  SkinnyRun<bf16> run(c);
  run.Launch();
  const int64_t half = c.outputs / 2;
  DeviceArray<bf16> want(c.rows * half), got(c.rows * half);
  Activate(
      {Activation::kSilu, /*gated=*/true, run.y.data(), want.data(), DType::kBF16, c.rows, half},
      nullptr);
  SkinnyArgs args = run.Args();
  args.y = got.data();
  args.gated = true;
  GemmSkinny(args, nullptr);
  WaitForDevice();
  for (int64_t i = 0; i < c.rows * half; ++i) {
    ASSERT_EQ(dev::BitsOf(got[i]), dev::BitsOf(want[i])) << c.Name() << " at " << i;
  }
  for (size_t i = 0; i < run.counters.size(); ++i) ASSERT_EQ(run.counters[i], 0u) << c.Name();
}

constexpr int kRows[] = {1, 2, 3, 7, 8, 9, 17, 34, 40, 63, 64};

TEST(CudaGemmSkinny, MatchesDoublePrecision) {
  for (const int rows : kRows) {
    for (const auto& [outputs, inputs] :
         std::vector<std::pair<int64_t, int64_t>>{{8, 8}, {72, 24}, {40, 328}, {136, 520}}) {
      for (const int splits : {1, 3}) {
        if (splits > MostSkinnySplits(inputs)) continue;
        TestSkinny<bf16>({rows, outputs, inputs, splits});
        TestSkinny<float>({rows, outputs, inputs, splits});
      }
    }
  }
}

TEST(CudaGemmSkinny, AddsAndHasABias) {
  for (const int rows : {5, 34}) {
    for (const bool bias : {false, true}) {
      for (const int splits : {1, 2}) {
        TestSkinny<bf16>({rows, 72, 200, splits, true, bias});
        TestSkinny<float>({rows, 72, 200, splits, true, bias});
        TestSkinny<float>({rows, 72, 200, splits, false, bias});
      }
    }
  }
}

TEST(CudaGemmSkinny, GatedAsByTwoLaunches) {
  for (const int rows : {1, 8, 9, 34, 64}) {
    for (const int64_t outputs : {16, 48, 64, 80, 144, 272}) {
      TestGated({rows, outputs, 200, 1, false, rows % 2 == 1});
      TestGated({rows, outputs, 200, 3, false, rows % 2 == 0});
    }
  }
}

// From one run of all stages to one stage for each block.
TEST(CudaGemmSkinny, EveryNumberOfSplits) {
  for (int splits = 1; splits <= 11; ++splits) TestSkinny<float>({9, 64, 11 * 64 - 8, splits});
}

// A cluster gives the bits of the join through memory, whatever it stores.
template <class T>
void TestClustered(const SkinnyCase& c) {
  SkinnyRun<T> through_memory(c);
  through_memory.Launch();
  SkinnyCase clustered = c;
  clustered.clustered = true;
  SkinnyRun<T> run(clustered);
  run.Launch();
  ExpectProduct(run);
  EXPECT_EQ(std::memcmp(run.y.data(), through_memory.y.data(), run.y.size() * sizeof(T)), 0)
      << clustered.Name();
}

TEST(CudaGemmSkinny, AClusterHasTheBitsOfTheJoinThroughMemory) {
  if (!DeviceHasClusters()) return;  // compute capability 8
  for (int splits = 2; splits <= kMostSkinnyCluster; ++splits) {
    TestClustered<float>({9, 72, 11 * 64 - 8, splits});
  }
  for (const int rows : kRows) {
    TestClustered<bf16>({rows, 136, 520, 3, rows % 2 == 0, rows % 3 == 0});
    TestClustered<float>({rows, 40, 328, 4, rows % 2 == 1, rows % 3 == 1});
  }
  for (const int rows : {1, 9, 64}) {
    for (const int64_t outputs : {16, 80, 144})
      TestGated({rows, outputs, 264, 4, false, true, true});
  }
}

// Few values, for other orders of the threads and sanitizers.
TEST(CudaGemmSkinny, SplitsInACluster) {
  if (!DeviceHasClusters()) return;  // compute capability 8
  TestClustered<bf16>({9, 72, 10 * 64 + 8, 3, true, true});
}

// Launches that overlap: a product fetches weights while the launch before it still writes its
// inputs, and each reads what the one before wrote, to a buffer of which the one before that read.
TEST(CudaGemmSkinny, ProductsThatOverlapReadWhatWasWritten) {
  constexpr int64_t kSide = 136;
  for (const bool clustered : {false, true}) {
    if (clustered && !DeviceHasClusters()) continue;
    SkinnyRun<bf16> run({9, kSide, kSide, 3, false, false, clustered});
    DeviceArray<bf16> a(9 * kSide), b(9 * kSide);
    const auto chain = [&] {
      SkinnyArgs args = run.Args();
      for (int i = 0; i < 4; ++i) {
        args.x = i % 2 == 0 ? a.data() : b.data();
        args.y = i % 2 == 0 ? b.data() : a.data();
        GemmSkinny(args, nullptr);
      }
    };
    const std::vector<bf16> x = run.x.Copy();
    std::copy(x.begin(), x.end(), a.data());
    chain();
    WaitForDevice();
    const std::vector<bf16> want = a.Copy();
    std::copy(x.begin(), x.end(), a.data());
    RunOverlapped(chain);
    EXPECT_EQ(std::memcmp(a.data(), want.data(), want.size() * sizeof(bf16)), 0) << clustered;
  }
}

// Few values, for tests that also run under the thread sanitizer and in many orders.
TEST(CudaGemmSkinny, SplitsOfALongRow) {
  SkinnyRun<bf16> run({9, 72, 10 * 64 + 8, 3, true, true});
  run.Launch();
  ExpectProduct(run);
  const std::vector<bf16> first = run.y.Copy();
  for (int again = 0; again < 2; ++again) {  // the counters are as before
    run.Launch();
    EXPECT_EQ(std::memcmp(first.data(), run.y.data(), first.size() * sizeof(bf16)), 0);
  }
}

// The last of its seven stages lies where the sums come to lie.
TEST(CudaGemmSkinny, OneRunOfALongRow) { TestSkinny<bf16>({9, 72, 6 * 64 + 8, 1, true, true}); }

// Sums whose value depends on the order in which the splits are added: 2^24, 1 and -2^24.
TEST(CudaGemmSkinny, SplitsAreAddedInOrder) {
  constexpr int kSplits = 4, kInputs = kSplits * kSkinnyDepth;
  SkinnyRun<float> run({3, 64, kInputs, kSplits});
  const float parts[kSplits] = {16777216.0f, 1.0f, -16777216.0f, 1.0f};
  for (int64_t k = 0; k < kInputs; ++k) {
    for (int64_t r = 0; r < 3; ++r) run.x[r * kInputs + k] = __float2bfloat16_rn(k % 64 ? 0 : 1);
    for (int64_t n = 0; n < 64; ++n)
      run.w[n * kInputs + k] = __float2bfloat16_rn(k % 64 ? 0 : parts[k / 64]);
  }
  run.Launch();
  for (size_t i = 0; i < run.y.size(); ++i) ASSERT_EQ(run.y[i], 1.0f) << i;
}

// The bits of a row are those that it has alone, whatever the other rows hold.
TEST(CudaGemmSkinny, ARowDependsOnItselfAlone) {
  SkinnyRun<float> whole({64, 72, 456, 3});
  whole.Launch();
  for (const int rows : {1, 9, 40}) {
    SkinnyRun<float> part({rows, 72, 456, 3});
    for (int64_t i = 0; i < rows * 456; ++i) part.x[i] = whole.x[i];
    if (rows > 1) part.x[0] = __float2bfloat16_rn(NAN);  // spoils the first row alone
    part.Launch();
    for (int64_t i = rows > 1 ? 72 : 0; i < rows * 72; ++i) ASSERT_EQ(part.y[i], whole.y[i]) << i;
  }
}

}  // namespace
}  // namespace coppice::kernels::cuda
