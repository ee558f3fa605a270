// Attention by wgmma and the copy engine: against double precision, and against the portable kernel, whose
// every sum it forms in the same order. On a GPU: of compute capability 9.0 alone.
#include "tests/kernels/cuda/test_work.h"

namespace coppice::kernels::cuda {
namespace {

// Twice with one list, as two layers. `exact`: bit for bit as the portable kernel, which is what the
// simulator promises; a device may add up a product in another way.
template <class T>
void TestWide(const AttentionShape& shape, const std::vector<RequestSpec>& requests, int workers,
              int least_tiles = 1) {
  AttentionCase<T, T> attention(shape, requests, shape.head_dim * 31 + workers);
  TestWork work(attention.plan(), ShapeOf(shape, workers, least_tiles));
  ASSERT_TRUE(CanAttendWide(kTypeOf<T>, attention.rule, attention.pool(), kSharedOfH100));
  ASSERT_FALSE(work.list.classes[kTileClasses - 1].items.empty());
  attention.slack = kTypeOf<T> == DType::kBF16 ? 4e-3 : 6e-4;  // of the rounded weights
  TiledAttention(attention.step(), attention.Args(), work.view, attention.pool(), nullptr);
  WaitForDevice();
  const std::vector<T> portable = attention.out().Copy();
  for (int pass = 0; pass < 2; ++pass) {
    AttentionArgs args = attention.Args();
    std::memset(args.out, 0xff, portable.size() * sizeof(T));  // NaN
    TiledAttention(attention.step(), args, work.view, attention.pool(), nullptr, kTileClasses - 1);
    ASSERT_EQ(AttendWide(attention.step(), args, work.view, attention.pool(), nullptr),
              cudaSuccess);
    WaitForDevice();
    const std::string what =
        "group " + std::to_string(shape.group) + " dim " + std::to_string(shape.head_dim) +
        " workers " + std::to_string(workers) + " prefix " + std::to_string(requests[0].prefix);
    attention.Check(what);
    work.ExpectCountersZero();
    if (!DeviceIsSimulated()) continue;
    const std::vector<T> wide = attention.out().Copy();
    ASSERT_EQ(std::memcmp(wide.data(), portable.data(), wide.size() * sizeof(T)), 0) << what;
  }
}

constexpr int kPrefixes[] = {0, 1, 15, 16, 63, 64, 65, 127, 128, 129, 300};

TEST(CudaAttentionWideShapes, EveryPrefixLength) {
  for (const int prefix : kPrefixes)
    TestWide<dev::bf16>({4, 1, 64}, {{prefix, 0, RandomChains(19, 4, prefix)}}, 2);
}

TEST(CudaAttentionWideShapes, BothHeadDimsAndTypes) {
  for (const int dim : {64, 128}) {
    TestWide<dev::bf16>({4, 2, dim}, {{130, 0, RandomChains(31, 4, dim)}}, 3);
    TestWide<dev::f16>({4, 2, dim}, {{130, 0, RandomChains(31, 4, dim)}}, 3);
  }
}

TEST(CudaAttentionWideShapes, EveryGroupThatFillsTheClass) {
  for (const int group : {1, 5, 7, 8})
    TestWide<dev::bf16>({group, 1, 64}, {{70, 0, RandomChains(100 / group, 4, group)}}, 2);
}

TEST(CudaAttentionWideShapes, RequestsThatShareBlocks) {
  TestWide<dev::bf16>(
      {8, 1, 64},
      {{300, 0, {1, 2}}, {30, 0, {1}}, {160 + 20, 3, {4}, 160, 0}, {256 + 7, 0, {1, 1, 3}, 256, 0}},
      3);
}

TEST(CudaAttentionWideShapes, WhatIsNotFiniteStaysInItsRequest) {
  TestNotFinite<dev::bf16>({24, 1, 64}, /*exact=*/false, /*wide=*/true);
  TestNotFinite<dev::f16>({24, 1, 128}, /*exact=*/true, /*wide=*/true);
}

// More tiles than the ring has stages, by many blocks and by one; several items a block.
TEST(CudaAttentionWideShapes, SplitsAreMergedInOrder) {
  for (const int workers : {1, 2, 5, 12})
    TestWide<dev::bf16>({4, 1, 64}, {{700, 0, RandomChains(20, 3, 9)}}, workers);
}

TEST(CudaAttentionWideShapes, PrefillAndSeveralRequests) {
  TestWide<dev::bf16>({4, 1, 64}, {{200, 70, {}}}, 3);  // row tiles of 32 rows, causal
  TestWide<dev::bf16>({4, 1, 128},
                      {{150, 0, RandomChains(21, 3, 1)}, {70, 40, {2, 1}}, {20, 0, {1}}}, 3);
}

// Small, for the thread sanitizer and for many orders of the threads.
TEST(CudaAttentionWide, SmallSplits) {
  TestWide<dev::bf16>({4, 1, 64}, {{400, 0, RandomChains(20, 2, 3)}}, 3);
}

TEST(CudaAttentionWide, TakesOnlyWhatItCan) {
  DevicePool pool;
  pool.layers = 32;
  pool.kv_heads = 8;
  pool.blocks = 1000;
  pool.head_dim = 128;
  AttentionRule rule = {.scale = 0.3f};
  const auto can = [&](DType activations, int64_t shared = kSharedOfH100) {
    return CanAttendWide(activations, rule, pool, shared);
  };
  EXPECT_TRUE(can(DType::kBF16));
  EXPECT_FALSE(can(DType::kF16));
  EXPECT_FALSE(can(DType::kF32));
  EXPECT_FALSE(can(DType::kBF16, 100 << 10));
  rule.softcap = 50;
  EXPECT_FALSE(can(DType::kBF16));
  rule = {.scale = 0.3f, .window = 4096};
  EXPECT_FALSE(can(DType::kBF16));
  rule.window = 0;
  pool.head_dim = 96;
  EXPECT_FALSE(can(DType::kBF16));
  pool.head_dim = 128;
  pool.blocks = int64_t{1} << 20;  // more rows than a coordinate counts
  EXPECT_FALSE(can(DType::kBF16));
}

}  // namespace
}  // namespace coppice::kernels::cuda
