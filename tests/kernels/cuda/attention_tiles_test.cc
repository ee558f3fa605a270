#include <cstdlib>
#include <optional>

#include "kernels/cuda/ops/work_list.h"
#include "tests/kernels/cuda/attention_fixture.h"
#include "tests/kernels/cuda/test_work.h"

namespace coppice::kernels::cuda {
namespace {

using dev::bf16;
using dev::f16;

// Sets a variable of the environment, and puts back what was there.
class ScopedEnvironment {
 public:
  ScopedEnvironment(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value, /*overwrite=*/1);
  }
  ~ScopedEnvironment() {
    if (before_.has_value()) {
      setenv(name_, before_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

constexpr int64_t kSharedOfA100 = 163 << 10, kSharedOfA10 = 99 << 10;

// Twice with one list, as two layers: the second pass finds the counters as the first left them.
template <class T = bf16, class P = T>
void TestTiles(const AttentionShape& shape, const std::vector<RequestSpec>& requests, int workers,
               int least_tiles = 1) {
  AttentionCase<T, P> attention(shape, requests, shape.head_dim * 31 + workers);
  TestWork work(attention.plan(), ShapeOf(shape, workers, least_tiles));
  attention.slack = kTypeOf<T> == DType::kBF16 ? 4e-3 : 6e-4;  // of the rounded weights
  attention.rounds_codes = kTypeOf<P> == DType::kI8;
  for (int pass = 0; pass < 2; ++pass) {
    TiledAttention(attention.step(), attention.Args(), work.view, attention.pool(), nullptr);
    WaitForDevice();
    attention.Check("group " + std::to_string(shape.group) + " dim " +
                    std::to_string(shape.head_dim) + " workers " + std::to_string(workers) +
                    " prefix " + std::to_string(requests[0].prefix));
    work.ExpectCountersZero();
  }
}

// A rule of the model's own. KV tiles before the windows of all rows are not read. apart: how much
// longer the contexts of a row tile are than its shortest, if its rows are of several requests.
void TestRule(const AttentionShape& shape, const std::vector<RequestSpec>& requests,
              const AttentionRule& rule, int workers, bool exact = false, int apart = 0) {
  AttentionCase<bf16, bf16> attention(shape, requests, shape.head_dim * 31 + workers);
  attention.rule = rule;
  if (rule.window > 0) attention.HideUnseen(rule.window + apart + kKvTile - 1);
  WorkShape work_shape = ShapeOf(shape, workers, 1);
  work_shape.exact = exact;
  TestWork work(attention.plan(), work_shape);
  attention.slack = 4e-3;
  TiledAttention(attention.step(), attention.Args(), work.view, attention.pool(), nullptr);
  WaitForDevice();
  attention.Check("window " + std::to_string(rule.window) + " cap " + std::to_string(rule.softcap) +
                  " workers " + std::to_string(workers));
  work.ExpectCountersZero();
}

TEST(CudaAttentionTiles, EveryHeadDimInEachClass) {
  for (const int dim : {32, 64, 72, 80, 96, 128, 136, 256}) {
    TestTiles({4, 1, dim}, {{70, 0, {1, 2, 1}}}, 1);               // 12 packed rows
    TestTiles({4, 1, dim}, {{70, 0, RandomChains(9, 4, 1)}}, 2);   // 36
    TestTiles({4, 1, dim}, {{70, 0, RandomChains(31, 4, 2)}}, 1);  // 124; 60 with wide heads
  }
}

TEST(CudaAttentionTiles, F16InEachClass) {
  for (const int dim : {64, 80, 128, 256}) {
    TestTiles<f16>({4, 1, dim}, {{70, 0, {1, 2, 1}}}, 1);
    TestTiles<f16>({4, 1, dim}, {{170, 0, RandomChains(9, 4, 1)}}, 3);
    TestTiles<f16>({4, 1, dim}, {{70, 0, RandomChains(31, 4, 2)}}, 2);
  }
}

TEST(CudaAttentionTiles, EveryGroup) {
  for (const int group : {1, 4, 5, 7, 8}) {
    TestTiles({group, 2, 64}, {{65, 1, RandomChains(5, 3, group)}}, 3);
    TestTiles({group, 1, 64}, {{17, 0, RandomChains(33, 5, group)}}, 1);
  }
}

TEST(CudaAttentionTiles, EveryPrefixLength) {
  for (const int prefix : {0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 300}) {
    TestTiles({2, 1, 64}, {{prefix, std::min(prefix, 1), {1, 2, 17}}}, 2);
  }
}

TEST(CudaAttentionTiles, SplitsAreMergedInOrder) {
  for (const int workers : {1, 2, 5, 40}) {
    TestTiles({4, 2, 64}, {{400, 0, {1, 2, 3}}}, workers);
    TestTiles({4, 1, 64}, {{400, 0, RandomChains(12, 4, 3)}}, workers);
    TestTiles({8, 1, 64}, {{200, 0, RandomChains(16, 4, 4)}}, workers);
  }
}

TEST(CudaAttentionTiles, LongChainsAndPrefill) {
  TestTiles({2, 1, 64}, {{7, 0, {100, 1, 31, 64, 65}}}, 2);
  TestTiles({4, 1, 64}, {{100, 70, {}}}, 3);       // row tiles of 32 rows, causal
  TestTiles({1, 1, 64}, {{130, 130, {2, 1}}}, 2);  // 132 rows: two row tiles
}

TEST(CudaAttentionTiles, ScoresAreScaledAndCapped) {
  for (const float softcap : {0.0f, 0.5f, 30.0f}) {
    for (const int dim : {64, 256}) {
      TestRule({4, 1, dim}, {{70, 2, {1, 5}}}, {0.3f, softcap, 0}, 1);
      TestRule({4, 1, dim}, {{170, 0, RandomChains(12, 4, 1)}}, {0.1f, softcap, 100}, 3);
    }
  }
}

// Windows that begin within a KV tile, at its end, within a chain, and before the first position;
// parts of a row tile that lie before the window of every row.
TEST(CudaAttentionTiles, RowsSeeTheirWindow) {
  for (const int window : {1, 2, 33, 63, 64, 65, 128, 150, 5000}) {
    for (const bool exact : {false, true}) {
      TestRule({2, 1, 64}, {{300, 1, {1, 3, 40}}}, {0.125f, 0, window}, 4, exact);
      TestRule({4, 2, 64}, {{200, 0, RandomChains(12, 5, 3)}, {7, 7, {}}}, {0.125f, 0, window}, 5,
               exact);
      TestRule({4, 1, 64}, {{230, 70, {}}}, {0.125f, 0, window}, 3, exact);  // causal
    }
    TestRule({2, 1, 256}, {{150, 2, RandomChains(30, 5, 2)}}, {0.0625f, 0, window}, 3);
  }
}

// Chains that are longer than the window, and rows of other lengths beside each other.
TEST(CudaAttentionTiles, WindowsWithinChains) {
  const AttentionShape shape = {2, 1, 64};
  for (const bool exact : {false, true}) {
    AttentionCase<bf16, bf16> attention(shape, {{7, 2, {100, 1, 31, 64, 65, 160}}}, 8);
    attention.rule.window = 20;
    WorkShape work_shape = ShapeOf(shape, 3, 1);
    work_shape.exact = exact;
    TestWork work(attention.plan(), work_shape);
    attention.slack = 4e-3;
    TiledAttention(attention.step(), attention.Args(), work.view, attention.pool(), nullptr);
    WaitForDevice();
    attention.Check("within chains");
  }
}

TEST(CudaAttentionTiles, MixedRequests) {
  TestTiles({4, 2, 64},
            {{65, 0, RandomChains(32, 5, 1)},
             {17, 17, {}},
             {0, 0, {1}},
             {200, 1, {}},
             {1, 1, {}},
             {40, 0, {1, 1, 1, 1}},
             {0, 0, RandomChains(9, 4, 2)}},
            4);
}

// Requests that share blocks, also within one another, whose rows are not beside each other.
TEST(CudaAttentionTiles, RequestsThatShareBlocks) {
  const std::vector<RequestSpec> requests = {
      {300, 2, {1, 2}},           {150, 0, {1}},
      {160 + 20, 3, {4}, 160, 0}, {256 + 7, 0, {1, 1, 3}, 256, 0},
      {144, 0, {2}, 144, 1},      {176 + 64, 1, {1}, 176, 2},
      {144 + 5, 5, {}, 144, 1}};
  for (const int workers : {1, 5}) {
    TestTiles({4, 2, 64}, requests, workers);
    TestTiles({1, 1, 80}, requests, workers);
    TestTiles<f16>({2, 1, 128}, requests, workers);
    TestTiles<bf16, int8_t>({4, 1, 64}, requests, workers);
    for (const int window : {1, 40, 130})
      TestRule({4, 1, 64}, requests, {0.125f, 0, window}, workers, workers == 1, 300 + 4 - 145);
  }
}

TEST(CudaAttentionTiles, WhatIsNotFiniteStaysInItsRequest) {
  for (const bool exact : {false, true}) {
    TestNotFinite<bf16>({4, 1, 64}, exact);    // 16 packed rows
    TestNotFinite<f16>({8, 1, 80}, exact);     // 32
    TestNotFinite<bf16>({24, 1, 128}, exact);  // 96
    TestNotFinite<bf16, int8_t>({4, 2, 64}, exact);
  }
}

TEST(CudaAttentionTiles, RowThatSeesNothingGivesZero) {
  StepPlan plan;
  plan.token = plan.slot = {0, 0};
  plan.position = {-1, -1};
  plan.chain_begin = {0, 0, 0};
  plan.segments = {{0, 2, 0}};
  plan.table_begin = {0, 0};
  const TestStep step(plan);
  TestPool<bf16> pool(1, 1, 64, 2, 1);
  TestWork work(plan, ShapeOf({2, 1, 64}, 1, 1));
  DeviceArray<bf16> qkv(RandomValues<bf16>(2 * 4 * 64, 1)), out(2 * 2 * 64);
  AttentionArgs args;
  args.qkv = qkv.data();
  args.out = out.data();
  args.q_heads = 2;
  args.rule.scale = 0.125f;
  TiledAttention(step.view, args, work.view, pool.view, nullptr);
  WaitForDevice();
  for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(dev::ToFloat(out[i]), 0.0f);
}

TEST(CudaAttentionTiles, LargeScoresStayFinite) {
  const AttentionShape shape = {1, 1, 64};
  AttentionCase<bf16, bf16> attention(shape, {{300, 0, {1, 40}}}, 4, 1e4f);
  TestWork work(attention.plan(), ShapeOf(shape, 3, 1));
  TiledAttention(attention.step(), attention.Args(), work.view, attention.pool(), nullptr);
  WaitForDevice();
  attention.slack = 0.05;
  attention.Check("large scores");
}

// The same bits from run to run, whichever block of a row tile finishes last.
TEST(CudaAttentionTiles, BitsDoNotDependOnTheOrderOfBlocks) {
  const AttentionShape shape = {4, 2, 64};
  AttentionCase<bf16, bf16> attention(shape, {{700, 0, {1, 2, 3}}}, 5);
  TestWork work(attention.plan(), ShapeOf(shape, 9, 1));
  std::vector<bf16> first;
  for (const char* order : {"forward", "reverse", "random"}) {
    const ScopedEnvironment in_order("DEV_ORDER", order);
    const ScopedEnvironment resident("DEV_RESIDENT", "5");
    TiledAttention(attention.step(), attention.Args(), work.view, attention.pool(), nullptr);
    WaitForDevice();
    if (first.empty()) first = attention.out().Copy();
    EXPECT_EQ(std::memcmp(first.data(), attention.out().data(), first.size() * sizeof(bf16)), 0)
        << order;
  }
}

// Wide heads in the middle class: warps share rows, and splits are merged.
TEST(CudaAttentionTiles, WideHeads) {
  TestTiles({4, 2, 256}, {{300, 0, RandomChains(12, 4, 3)}, {17, 17, {}}, {0, 0, {1}}}, 5);
  TestTiles<f16>({8, 1, 192}, {{200, 0, {1, 40}}, {130, 70, {}}}, 4);
}

TEST(CudaAttentionTiles, CodesOfEveryHeadDim) {
  for (const int dim : {8, 64, 72, 96, 128, 256}) {
    TestTiles<bf16, int8_t>({4, 2, dim}, {{300, 0, RandomChains(12, 4, 3)}, {17, 17, {}}}, 5);
    TestTiles<f16, int8_t>({8, 1, dim}, {{200, 0, {1, 40}}, {130, 70, {}}}, 4);
  }
  TestTiles<bf16, int8_t>({1, 1, 64}, {{65, 0, {1}}}, 1);
}

TEST(CudaAttentionTiles, SaysWhatItCan) {
  DevicePool pool;
  const auto classes = [&](int head_dim, DType activations, int64_t shared) {
    pool.head_dim = head_dim;
    return TileClasses(activations, pool, shared);
  };
  EXPECT_EQ(classes(128, DType::kBF16, kSharedOfH100), 3);
  EXPECT_EQ(classes(128, DType::kBF16, kSharedOfA100), 3);
  EXPECT_EQ(classes(128, DType::kBF16, kSharedOfA10), 2);
  EXPECT_EQ(classes(64, DType::kBF16, kSharedOfA10), 3);
  EXPECT_EQ(classes(136, DType::kBF16, kSharedOfH100), 2);
  EXPECT_EQ(classes(256, DType::kBF16, kSharedOfH100), 2);
  EXPECT_EQ(classes(256, DType::kBF16, kSharedOfA100), 1);
  EXPECT_EQ(classes(256, DType::kBF16, kSharedOfA10), 0);
  EXPECT_EQ(classes(264, DType::kBF16, kSharedOfH100), 0);
  EXPECT_EQ(classes(64, DType::kF32, kSharedOfH100), 0);
  EXPECT_EQ(classes(64, DType::kF16, kSharedOfH100), 0);  // the pool is bf16
  pool.dtype = DType::kF16;
  EXPECT_EQ(classes(64, DType::kF16, kSharedOfH100), 3);
  pool.dtype = DType::kI8;
  EXPECT_EQ(classes(64, DType::kF16, kSharedOfH100), 3);
  EXPECT_EQ(classes(128, DType::kBF16, kSharedOfH100), 3);
  EXPECT_EQ(classes(64, DType::kF32, kSharedOfH100), 0);
  pool.dtype = DType::kF32;
  EXPECT_EQ(classes(64, DType::kF32, kSharedOfH100), 0);
}

}  // namespace
}  // namespace coppice::kernels::cuda
