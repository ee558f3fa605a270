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
  args.rotary_dim = dim;
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
        std::vector<float> vector;
        for (int d = 0; d < dim; ++d) vector.push_back(dev::ToFloat(source[d]));
        pool.Put(vector, kLayer, value, plan.slot[r], head, &want);
      }
    }
  }
  // Nobody reads the sink, so what it holds is free; all else is bit for bit.
  const std::vector<P> after = pool.values.Copy();
  for (size_t i = 0; i < want.size(); ++i) {
    const size_t block = i / pool.BlockElements() % kBlocks;
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

TEST(CudaRope, CodesOfEveryShape) {
  for (const int dim : {8, 64, 80, 96, 128, 136, 256}) {
    TestRope<dev::bf16, int8_t>(4, 2, dim, 5);
    TestRope<dev::f16, int8_t>(1, 3, dim, 6);
    TestRope<float, int8_t>(5, 1, dim, 34);
  }
}

// The norms of q and of k heads.
struct HeadNorms {
  // heads: of q and of k whose norm is one; 1 and 1: each head has its own.
  HeadNorms(int dim, NormKind kind, bool with_bias, int q_heads = 1, int k_heads = 1)
      : kind(kind), with_bias(with_bias), together(q_heads > 1) {
    for (uint64_t i = 0; i < 2; ++i) {
      const int size = (i == 0 ? q_heads : k_heads) * dim;
      gain.push_back(std::make_unique<DeviceArray<float>>(RandomValues<float>(size, 50 + i, 2.0f)));
      bias.push_back(std::make_unique<DeviceArray<float>>(RandomValues<float>(size, 60 + i)));
    }
  }
  NormArgs Args(int i) const {
    return {gain[i]->data(), with_bias ? bias[i]->data() : nullptr, kind, 1e-6f};
  }
  std::vector<double> Normed(int i, const std::vector<double>& values) const {
    const auto n = static_cast<double>(values.size());
    double mean = 0, variance = 0;
    for (const double value : values) mean += kind == NormKind::kLayer ? value / n : 0;
    for (const double value : values) variance += (value - mean) * (value - mean) / n;
    std::vector<double> normed;
    for (size_t d = 0; d < values.size(); ++d) {
      const double scaled = (values[d] - mean) / std::sqrt(variance + 1e-6) * (*gain[i])[d];
      normed.push_back(scaled + (with_bias ? (*bias[i])[d] : 0.0f));
    }
    return normed;
  }

  NormKind kind;
  bool with_bias, together;
  std::vector<std::unique_ptr<DeviceArray<float>>> gain, bias;  // of q, of k
};

// Heads whose first rotary_dim dims rotate, after their norms, unless that is nullptr.
template <class T, class P>
void TestSteps(int group, int kv_heads, int dim, int rotary_dim, const HeadNorms* norms) {
  constexpr int kRows = 5, kLayer = 1;
  const int q_heads = group * kv_heads, half = rotary_dim / 2;
  StepPlan plan;
  for (int r = 0; r < kRows; ++r) {
    plan.token.push_back(0);
    plan.position.push_back(r * 7);
    plan.slot.push_back(r == 2 ? 3 : kBlockSize + r);  // one row writes the sink
    plan.chain_begin.push_back(0);
  }
  const TestStep step(plan);
  const Angles angles(plan.position, 7 * kRows, half);
  const int64_t width = int64_t{q_heads + 2 * kv_heads} * dim;
  const std::vector<T> before = RandomValues<T>(kRows * width, dim, 3.0f);
  DeviceArray<T> qkv(before);
  TestPool<P> pool(3, kv_heads, dim, 4, 3);
  std::vector<P> want_pool = pool.values.Copy();
  RopeArgs args;
  args.qkv = qkv.data();
  args.dtype = kTypeOf<T>;
  args.q_heads = q_heads;
  args.layer = kLayer;
  if (norms != nullptr) {
    args.q_norm = norms->Args(0);
    args.k_norm = norms->Args(1);
    args.norms_together = norms->together;
  }
  args.rotary_dim = rotary_dim;
  args.cos = angles.cos.data();
  args.sin = angles.sin.data();
  RopeAndStoreKv(step.view, args, pool.view, nullptr);
  WaitForDevice();
  for (int r = 0; r < kRows; ++r) {
    // The values between two columns of the row, normed together.
    const auto normed = [&](int first, int last, int which) {
      std::vector<double> values;
      for (int64_t i = r * width + first; i < r * width + last; ++i)
        values.push_back(dev::ToFloat(before[i]));
      return norms == nullptr || which > 1 ? values : norms->Normed(which, values);
    };
    for (int head = 0; head < q_heads + 2 * kv_heads; ++head) {
      const int64_t begin = r * width + head * dim;
      const bool value = head >= q_heads + kv_heads;
      const int which = head < q_heads ? 0 : value ? 2 : 1;
      std::vector<double> x;
      if (norms != nullptr && norms->together && !value) {
        const int first = which == 0 ? 0 : q_heads * dim, count = which == 0 ? q_heads : kv_heads;
        const std::vector<double> all = normed(first, first + count * dim, which);
        x.assign(all.begin() + (head * dim - first), all.begin() + ((head + 1) * dim - first));
      } else {
        x = normed(head * dim, (head + 1) * dim, which);
      }
      for (int d = 0; d < dim; ++d) {
        double want = x[d];
        if (d < rotary_dim && !value) {
          const int64_t angle = int64_t{plan.position[r]} * half + d % half;
          const double other = d < half ? -x[d + half] : x[d - half];
          want = x[d] * angles.cos[angle] + other * angles.sin[angle];
        }
        ExpectNear(qkv[begin + d], want, 10.0, 1e-6,
                   testing::PrintToString(std::tuple(dim, rotary_dim, r, head, d)));
        if (testing::Test::HasFailure()) return;
      }
      if (head < q_heads || plan.slot[r] < kBlockSize) continue;
      const int kv_head = (head - q_heads) % kv_heads;
      std::vector<float> vector;
      for (int d = 0; d < dim; ++d) vector.push_back(dev::ToFloat(qkv[begin + d]));
      pool.Put(vector, kLayer, value, plan.slot[r], kv_head, &want_pool);
    }
  }
  const std::vector<P> after = pool.values.Copy();
  ASSERT_EQ(std::memcmp(after.data(), want_pool.data(), after.size() * sizeof(P)), 0);
}

TEST(CudaRope, RotatesAPartOfEachHead) {
  for (const auto& [dim, rotary_dim] : {std::pair(64, 16), {80, 20}, {96, 90}, {256, 64}}) {
    TestSteps<dev::bf16, dev::bf16>(4, 2, dim, rotary_dim, nullptr);
    TestSteps<dev::f16, dev::f16>(1, 1, dim, rotary_dim, nullptr);
    TestSteps<float, float>(2, 1, dim, rotary_dim, nullptr);
    TestSteps<float, dev::bf16>(3, 1, dim, rotary_dim, nullptr);
    TestSteps<dev::bf16, int8_t>(3, 2, dim, rotary_dim, nullptr);
  }
}

TEST(CudaRope, WithoutRotationOnlyStores) {
  TestSteps<dev::bf16, dev::bf16>(4, 2, 64, 0, nullptr);
  TestSteps<float, float>(2, 1, 40, 0, nullptr);
  TestSteps<float, int8_t>(2, 1, 40, 0, nullptr);
}

TEST(CudaRope, NormsTheHeads) {
  for (const int dim : {8, 64, 80, 128, 256}) {
    for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
      for (const bool with_bias : {false, true}) {
        const HeadNorms norms(dim, kind, with_bias);
        TestSteps<dev::bf16, dev::bf16>(4, 2, dim, dim, &norms);
        TestSteps<dev::f16, dev::f16>(5, 1, dim, dim / 2, &norms);
        TestSteps<float, float>(2, 1, dim, 0, &norms);
        TestSteps<float, int8_t>(2, 1, dim, dim, &norms);
      }
    }
  }
}

TEST(CudaRope, NormsAllHeadsTogether) {
  for (const int dim : {8, 64, 256}) {
    for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
      const HeadNorms eight(dim, kind, kind == NormKind::kLayer, 8, 2), five(dim, kind, false, 5);
      TestSteps<dev::bf16, dev::bf16>(4, 2, dim, dim, &eight);
      TestSteps<dev::f16, dev::f16>(5, 1, dim, dim / 2, &five);
      TestSteps<float, float>(4, 2, dim, 0, &eight);
    }
  }
}

// With a bias the bits are those of AddBias, and then of rows without one.
template <class T, class P>
void TestBias(int q_heads, int kv_heads, int dim, int rows, int rotary_dim,
              const HeadNorms* norms) {
  StepPlan plan;
  for (int r = 0; r < rows; ++r) {
    plan.token.push_back(0);
    plan.position.push_back(r * 3);
    plan.slot.push_back(kBlockSize + r);
    plan.chain_begin.push_back(0);
  }
  const TestStep step(plan);
  const Angles angles(plan.position, rows * 3, rotary_dim / 2);
  const int64_t width = int64_t{q_heads + 2 * kv_heads} * dim;
  const std::vector<T> before = RandomValues<T>(rows * width, dim + rows);
  const DeviceArray<float> bias(RandomValues<float>(width, 77, 3.0f));
  DeviceArray<T> once(before), twice(before);
  TestPool<P> pool_of_once(2, kv_heads, dim, 4, 3), pool_of_twice(2, kv_heads, dim, 4, 3);
  RopeArgs args;
  args.dtype = kTypeOf<T>;
  args.q_heads = q_heads;
  args.layer = 1;
  if (norms != nullptr) {
    args.q_norm = norms->Args(0);
    args.k_norm = norms->Args(1);
    args.norms_together = norms->together;
  }
  args.rotary_dim = rotary_dim;
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
    TestBias<dev::bf16, dev::bf16>(4, 2, dim, 5, dim, nullptr);
    TestBias<dev::f16, dev::f16>(7, 1, dim, 3, dim, nullptr);
    TestBias<float, float>(2, 2, dim, 2, dim, nullptr);
    TestBias<dev::bf16, float>(3, 3, dim, 2, dim, nullptr);
    const HeadNorms norms(dim, NormKind::kRms, false);
    TestBias<dev::bf16, dev::bf16>(4, 2, dim, 5, dim / 2, &norms);
    const HeadNorms together(dim, NormKind::kLayer, true, 4, 2);
    TestBias<dev::bf16, dev::bf16>(4, 2, dim, 5, dim, &together);
    TestBias<dev::f16, dev::f16>(7, 1, dim, 3, dim / 2, nullptr);
    TestBias<dev::bf16, int8_t>(3, 2, dim, 3, dim, nullptr);
  }
}

// What overflows in f16, or was infinite before, becomes NaN in q and K; V stays.
void TestOverflow(int rotary_dim, const std::vector<bool>& nan) {
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
  args.rotary_dim = rotary_dim;
  args.cos = angles.cos.data();
  args.sin = angles.sin.data();
  RopeAndStoreKv(step.view, args, pool.view, nullptr);
  WaitForDevice();
  for (int i = 0; i < kDim; ++i) {
    const float k = dev::ToFloat(pool.values[pool.Index(0, 0, kBlockSize, 0) + i]);
    EXPECT_EQ(std::isnan(dev::ToFloat(qkv[i])), nan[i]) << "q " << i;
    EXPECT_EQ(std::isnan(k), nan[i]) << "k " << i;
    EXPECT_FALSE(std::isinf(k)) << "k " << i;
    EXPECT_EQ(dev::ToFloat(pool.values[pool.Index(0, 1, kBlockSize, 0) + i]), head[i]) << "v " << i;
  }
}

// The scale and the codes of a V.
std::pair<float, std::vector<int8_t>> CodesOf(const std::vector<float>& v) {
  const auto dim = static_cast<int>(v.size());
  StepPlan plan;
  plan.token = plan.position = {0};
  plan.slot = {kBlockSize + 5};
  plan.chain_begin = {0, 0};
  const TestStep step(plan);
  std::vector<float> row(2 * dim, 1.0f);
  row.insert(row.end(), v.begin(), v.end());
  DeviceArray<float> qkv(row);
  TestPool<int8_t> pool(1, 1, dim, 3, 1);
  RopeArgs args;
  args.qkv = qkv.data();
  args.dtype = DType::kF32;
  args.q_heads = 1;
  RopeAndStoreKv(step.view, args, pool.view, nullptr);
  WaitForDevice();
  float scale;
  std::memcpy(&scale, &pool.values[pool.ScaleIndex(0, 1, kBlockSize + 5, 0)], sizeof scale);
  const int8_t* const codes = &pool.values[pool.Index(0, 1, kBlockSize + 5, 0)];
  return {scale, std::vector<int8_t>(codes, codes + dim)};
}

// Zeros, ties, numbers near the subnormal ones, and what is not finite.
TEST(CudaRope, CodesOfEveryKindOfVector) {
  const std::vector<float> ties = {127.0f, 0.5f, 1.5f, -0.5f, -1.5f, 2.5f, -126.5f, 126.5f};
  EXPECT_EQ(CodesOf(ties), std::pair(1.0f, std::vector<int8_t>{127, 0, 2, 0, -2, 2, -126, 126}));
  for (const int dim : {8, 72, 256}) {
    const std::vector<int8_t> zeros(dim, 0);
    for (const int place : {0, 5, dim - 1}) {
      std::vector<float> v(dim, 0.0f);
      EXPECT_EQ(CodesOf(v), std::pair(0.0f, zeros));
      v[place] = 1e-37f;  // its scale would be subnormal
      EXPECT_EQ(CodesOf(v), std::pair(0.0f, zeros));
      std::vector<int8_t> want = zeros;
      v[place] = -0x1p-119f;
      want[place] = -127;
      EXPECT_EQ(CodesOf(v), std::pair(0x1p-119f / 127, want));
      for (const float bad : {INFINITY, -INFINITY, NAN}) {
        std::vector<float> values(dim, 3.0f);
        values[place] = bad;
        const auto [scale, codes] = CodesOf(values);
        EXPECT_TRUE(std::isnan(scale)) << place;
        EXPECT_EQ(codes, zeros);
      }
    }
  }
}

TEST(CudaRope, OverflowInF16IsNan) {
  TestOverflow(8, {true, true, false, false, false, true, false, false});
  TestOverflow(0, {false, true, false, false, false, false, false, false});
}

}  // namespace
}  // namespace coppice::kernels::cuda
