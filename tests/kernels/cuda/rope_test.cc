#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/kernels/cuda/step_fixture.h"

namespace coppice::kernels::cuda {
namespace {

// The angles of the positions that the test uses; rows of the table that no one uses are NaN.
struct Angles {
  Angles(const std::vector<int32_t>& positions, int32_t last, int half)
      : cos((size_t{1} + last) * half), sin((size_t{1} + last) * half) {
    for (const int32_t position : positions) {
      for (int i = 0; i < half; ++i) {
        const double angle = position * std::pow(10000.0, -static_cast<double>(i) / half);
        cos[size_t(position) * half + i] = static_cast<float>(std::cos(angle));
        sin[size_t(position) * half + i] = static_cast<float>(std::sin(angle));
      }
    }
  }
  DeviceArray<float> cos, sin;
};

// T: activations, P: the pool.
template <class T, class P>
void TestRope(int group, int kv_heads, int dim, int rows, int32_t last = 1000) {
  constexpr int kBlocks = 12, kLayers = 3, kLayer = 1;
  const int q_heads = group * kv_heads, half = dim / 2;
  std::vector<int32_t> slots((kBlocks - 1) * kBlockSize);
  std::iota(slots.begin(), slots.end(), kBlockSize);
  std::mt19937_64 generator(dim * 100 + group + rows);
  std::shuffle(slots.begin(), slots.end(), generator);
  StepPlan plan;
  for (int r = 0; r < rows; ++r) {
    plan.token.push_back(0);
    plan.position.push_back(r == 0 ? 0 : r == 1 ? last : generator() % 3 * 7 + r % 3);
    plan.slot.push_back(r % 4 == 3 ? r % kBlockSize : slots[r]);  // some rows write the sink
    plan.chain_begin.push_back(0);
  }
  const TestStep step(plan);
  const Angles angles(plan.position, last, half);
  const int64_t width = int64_t{q_heads + 2 * kv_heads} * dim;
  const std::vector<T> before = RandomValues<T>(rows * width, dim + rows);
  DeviceArray<T> qkv(before);
  TestPool<P> pool(kLayers, kv_heads, dim, kBlocks, 3);
  std::vector<P> want = pool.values.Copy();
  RopeArgs args;
  args.qkv = qkv.data();
  args.dtype = kTypeOf<T>;
  args.q_heads = q_heads;
  args.layer = kLayer;
  args.cos = angles.cos.data();
  args.sin = angles.sin.data();
  RopeAndStoreKv(step.view, args, pool.view, nullptr);
  WaitForDevice();
  for (int r = 0; r < rows; ++r) {
    for (int head = 0; head < q_heads + 2 * kv_heads; ++head) {
      for (int d = 0; d < dim; ++d) {
        const int64_t i = r * width + head * dim + d;
        if (head >= q_heads + kv_heads) {  // V stays
          ASSERT_EQ(dev::ToFloat(qkv[i]), dev::ToFloat(before[i]));
          continue;
        }
        const int64_t angle = int64_t{plan.position[r]} * half + d % half;
        const double self = dev::ToFloat(before[i]);
        const double other = dev::ToFloat(before[d < half ? i + half : i - half]);
        const double rotated =
            self * angles.cos[angle] + (d < half ? -other : other) * angles.sin[angle];
        ExpectNear(qkv[i], rotated, 1.0, 1e-6, testing::PrintToString(std::pair(r, head)));
        if (testing::Test::HasFailure()) return;
      }
    }
    if (plan.slot[r] < kBlockSize) continue;
    for (int head = 0; head < kv_heads; ++head) {
      for (int value = 0; value < 2; ++value) {
        const T* source = qkv.data() + r * width + (q_heads + value * kv_heads + head) * dim;
        P* place = &want[pool.Index(kLayer, value, plan.slot[r], head)];
        for (int d = 0; d < dim; ++d) place[d] = dev::FromFloat<P>(dev::ToFloat(source[d]));
      }
    }
  }
  // Nobody reads the sink, so what it holds is free; all else is bit for bit.
  const std::vector<P> after = pool.values.Copy();
  for (size_t i = 0; i < want.size(); ++i) {
    const size_t block = i / (size_t{kBlockSize} * dim * kv_heads) % kBlocks;
    if (block == 0) continue;
    ASSERT_EQ(dev::ToFloat(after[i]), dev::ToFloat(want[i])) << "element " << i << " of the pool";
  }
}

TEST(CudaRope, RotatesAndStoresEveryShape) {
  for (const int dim : {8, 64, 80, 96, 128}) {
    for (const int group : {1, 4, 5, 7, 8}) {
      TestRope<dev::bf16, dev::bf16>(group, 2, dim, 5);
      TestRope<dev::f16, dev::f16>(group, 2, dim, 5);
      TestRope<float, float>(group, 1, dim, 2);
    }
  }
}

TEST(CudaRope, MixedTypesAndManyRows) {
  TestRope<float, dev::bf16>(4, 2, 64, 34);
  TestRope<dev::bf16, float>(3, 3, 40, 33);
  TestRope<dev::bf16, dev::bf16>(8, 1, 256, 1);
  TestRope<dev::bf16, dev::bf16>(1, 1, 64, 3, /*last=*/131071);
}

// With a bias the bits are those of AddBias, and then of rows without one.
template <class T, class P>
void TestBias(int q_heads, int kv_heads, int dim, int rows) {
  StepPlan plan;
  for (int r = 0; r < rows; ++r) {
    plan.token.push_back(0);
    plan.position.push_back(r * 3);
    plan.slot.push_back(kBlockSize + r);
    plan.chain_begin.push_back(0);
  }
  const TestStep step(plan);
  const Angles angles(plan.position, rows * 3, dim / 2);
  const int64_t width = int64_t{q_heads + 2 * kv_heads} * dim;
  const std::vector<T> before = RandomValues<T>(rows * width, dim + rows);
  const DeviceArray<float> bias(RandomValues<float>(width, 77, 3.0f));
  DeviceArray<T> once(before), twice(before);
  TestPool<P> pool_of_once(2, kv_heads, dim, 4, 3), pool_of_twice(2, kv_heads, dim, 4, 3);
  RopeArgs args;
  args.dtype = kTypeOf<T>;
  args.q_heads = q_heads;
  args.layer = 1;
  args.cos = angles.cos.data();
  args.sin = angles.sin.data();
  args.qkv = twice.data();
  AddBias(twice.data(), kTypeOf<T>, bias.data(), rows, width, nullptr);
  RopeAndStoreKv(step.view, args, pool_of_twice.view, nullptr);
  args.qkv = once.data();
  args.bias = bias.data();
  RopeAndStoreKv(step.view, args, pool_of_once.view, nullptr);
  WaitForDevice();
  for (int r = 0; r < rows; ++r) {
    const size_t bytes = static_cast<size_t>(q_heads + kv_heads) * dim * sizeof(T);  // V stays
    ASSERT_EQ(std::memcmp(&once[r * width], &twice[r * width], bytes), 0) << "row " << r;
  }
  const std::vector<P> got = pool_of_once.values.Copy(), want = pool_of_twice.values.Copy();
  ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(P)), 0);
}

TEST(CudaRope, AddsABias) {
  for (const int dim : {8, 64, 128}) {
    TestBias<dev::bf16, dev::bf16>(4, 2, dim, 5);
    TestBias<dev::f16, dev::f16>(7, 1, dim, 3);
    TestBias<float, float>(2, 2, dim, 2);
    TestBias<dev::bf16, float>(3, 3, dim, 2);
  }
}

// What overflows in f16, or was infinite before, becomes NaN in q and K; V stays.
TEST(CudaRope, OverflowInF16IsNan) {
  constexpr int kDim = 8, kHalf = 4;
  StepPlan plan;
  plan.token = plan.position = {1};
  plan.slot = {kBlockSize};
  plan.chain_begin = {0, 0};
  const TestStep step(plan);
  Angles angles({}, 1, kHalf);
  for (int i = 0; i < kHalf; ++i) angles.cos[kHalf + i] = angles.sin[kHalf + i] = std::sqrt(0.5f);
  // One q, one K and one V head of the same values: rotated, the first pair and the second overflow.
  const std::vector<float> head = {65504, INFINITY, 1, 0, -65504, 1, 1, 65504};
  std::vector<dev::f16> values;
  for (int i = 0; i < 3 * kDim; ++i) values.push_back(dev::FromFloat<dev::f16>(head[i % kDim]));
  DeviceArray<dev::f16> qkv(values);
  TestPool<dev::f16> pool(1, 1, kDim, 2, 1);
  RopeArgs args;
  args.qkv = qkv.data();
  args.dtype = DType::kF16;
  args.q_heads = 1;
  args.cos = angles.cos.data();
  args.sin = angles.sin.data();
  RopeAndStoreKv(step.view, args, pool.view, nullptr);
  WaitForDevice();
  const std::vector<bool> nan = {true, true, false, false, false, true, false, false};
  for (int i = 0; i < kDim; ++i) {
    const float k = dev::ToFloat(pool.values[pool.Index(0, 0, kBlockSize, 0) + i]);
    EXPECT_EQ(std::isnan(dev::ToFloat(qkv[i])), nan[i]) << "q " << i;
    EXPECT_EQ(std::isnan(k), nan[i]) << "k " << i;
    EXPECT_FALSE(std::isinf(k)) << "k " << i;
    EXPECT_EQ(dev::ToFloat(pool.values[pool.Index(0, 1, kBlockSize, 0) + i]), head[i]) << "v " << i;
  }
}

}  // namespace
}  // namespace coppice::kernels::cuda
