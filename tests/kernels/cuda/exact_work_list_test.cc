#include "kernels/cuda/ops/exact_work_list.h"

#include <gtest/gtest.h>

#include "tests/kernels/cuda/attention_fixture.h"
#include "tests/kernels/cuda/item_rows.h"
#include "tests/kernels/cuda/test_work.h"

namespace coppice::kernels::cuda {
namespace {

using dev::bf16;
using dev::f16;

constexpr int64_t kSharedOfH100 = 227 << 10;

WorkShape ExactShapeOf(const AttentionShape& shape, int workers, int classes) {
  WorkShape work;
  work.group = shape.group;
  work.kv_heads = shape.kv_heads;
  work.head_dim = shape.head_dim;
  work.classes = classes;
  work.exact = true;
  for (int& count : work.workers) count = workers;
  return work;
}

// Row r of a plan, alone: its context lies where it lay.
StepPlan Alone(const StepPlan& plan, int r) {
  size_t s = 0;
  while (r >= plan.segments[s].first_row + plan.segments[s].rows) ++s;
  StepPlan alone;
  alone.token = {plan.token[r]};
  alone.position = {plan.position[r]};
  alone.slot = {plan.slot[r]};
  alone.chain.assign(plan.chain.begin() + plan.chain_begin[r],
                     plan.chain.begin() + plan.chain_begin[r + 1]);
  alone.chain_begin = {0, static_cast<int32_t>(alone.chain.size())};
  alone.segments = {{0, 1, plan.segments[s].prefix_len}};
  alone.table.assign(plan.table.begin() + plan.table_begin[s],
                     plan.table.begin() + plan.table_begin[s + 1]);
  alone.table_begin = {0, static_cast<int32_t>(alone.table.size())};
  return alone;
}

// Each row of the plan has the bits that it has alone, and those that double precision wants.
template <class T>
void ExpectRowsOfTheirOwn(const AttentionShape& shape, const std::vector<RequestSpec>& requests,
                          int workers, int classes, int every = 1, int window = 0) {
  AttentionCase<T, T> together(shape, requests, 77);
  together.rule.window = window;
  together.slack = kTypeOf<T> == DType::kBF16 ? 4e-3 : 6e-4;
  TestWork work(together.plan(), ExactShapeOf(shape, workers, classes));
  for (int pass = 0; pass < 2; ++pass) {  // the second finds the counters as the first left them
    TiledAttention(together.step(), together.Args(), work.view, together.pool(), nullptr);
    WaitForDevice();
    together.Check("exact, dim " + std::to_string(shape.head_dim));
    work.ExpectCountersZero();
  }
  const int64_t width = int64_t{shape.q_heads() + 2 * shape.kv_heads} * shape.head_dim;
  for (int r = 0; r < together.rows(); r += every) {
    const StepPlan plan = Alone(together.plan(), r);
    TestStep step(plan);
    TestWork own(plan, ExactShapeOf(shape, 1, classes));
    DeviceArray<T> qkv(
        std::vector<T>(together.qkv().data() + r * width, together.qkv().data() + (r + 1) * width));
    DeviceArray<T> out(together.OutWidth());
    AttentionArgs args = together.Args();
    args.qkv = qkv.data();
    args.out = out.data();
    TiledAttention(step.view, args, own.view, together.pool(), nullptr);
    WaitForDevice();
    ASSERT_EQ(std::memcmp(out.data(), together.out().data() + r * together.OutWidth(),
                          out.size() * sizeof(T)),
              0)
        << "row " << r << ", dim " << shape.head_dim;
  }
}

TEST(CudaExactAttention, ARowDependsOnItsContextAlone) {
  const std::vector<RequestSpec> requests = {
      {125, 9, RandomChains(20, 6, 1)}, {64, 3, {1, 2, 3, 3}}, {3, 3, {1, 70, 70, 5}}};
  ExpectRowsOfTheirOwn<bf16>({4, 1, 64}, requests, 3, 3);
  ExpectRowsOfTheirOwn<f16>({2, 2, 64}, requests, 2, 3);
  ExpectRowsOfTheirOwn<bf16>({4, 1, 72}, requests, 5, 1);  // one class: its warps share the tokens
  ExpectRowsOfTheirOwn<bf16>({8, 1, 136}, requests, 5, 2, 3);
}

// Chains that lie across the end of a chunk: the rows have other numbers of partial results.
TEST(CudaExactAttention, ChunksBeginAtTheSamePositions) {
  constexpr int kChunk = kExactChunkTiles * kKvTile;
  ExpectRowsOfTheirOwn<bf16>({4, 1, 64}, {{kChunk - 3, 2, {1, 2, 3, 4, 6, 70, 70}}}, 4, 3);
}

// Other rows decide which KV tiles before its window a row passes over.
TEST(CudaExactAttention, ARowWithAWindowDependsOnItsContextAlone) {
  constexpr int kChunk = kExactChunkTiles * kKvTile;
  for (const int window : {1, 64, 100, kChunk}) {
    ExpectRowsOfTheirOwn<bf16>({4, 1, 64}, {{kChunk + 70, 68, {1, 2, 70}}}, 4, 3, 7, window);
    ExpectRowsOfTheirOwn<bf16>({4, 1, 64}, {{125, 9, RandomChains(20, 6, 1)}, {3, 3, {1, 70, 5}}},
                               3, 3, 2, window);
  }
}

// Requests that share blocks, also within one another, pass together, and the rows of one are not
// beside each other in the plan.
TEST(CudaExactAttention, ARowOfASharedPrefixDependsOnItsContextAlone) {
  constexpr int kChunk = kExactChunkTiles * kKvTile;
  const std::vector<RequestSpec> nested = {{kChunk + 71, 3, {1, 2, 70}},
                                           {150, 0, {1, 2}},
                                           {kChunk + 16 + 5, 2, {3, 1}, kChunk + 16, 0},
                                           {320 + 9, 4, {2}, 320, 0},
                                           {kChunk, 0, {90}, kChunk, 2},
                                           {144 + 3, 3, {1}, 144, 1}};
  ExpectRowsOfTheirOwn<bf16>({4, 1, 64}, nested, 3, 3);
  ExpectRowsOfTheirOwn<f16>({2, 2, 64}, nested, 2, 3, 3);
  ExpectRowsOfTheirOwn<bf16>({1, 1, 72}, nested, 5, 1, 3);  // one class
  for (const int window : {1, 64, 100, kChunk})
    ExpectRowsOfTheirOwn<bf16>({4, 1, 64}, nested, 4, 3, 4, window);
}

// A token at position p stands at place p % 64 of a KV tile; tiles ascend; items end with chunks.
TEST(CudaExactWorkList, PlacesFollowFromPositions) {
  constexpr int kChunk = kExactChunkTiles * kKvTile;
  const StepPlan plan = MakeForest({{kChunk + 100, 40, RandomChains(20, 6, 3)},
                                    {kChunk - 2, 0, {1, 2, 3, 4, 5}},
                                    {300, 0, {1}},
                                    {320 + 30, 3, {2, 40}, 320, 1}},
                                   4)
                            .plan;
  const WorkList list = MakeWorkList(plan, ExactShapeOf({4, 1, 64}, 7, 3));
  std::vector<std::vector<int32_t>> seen(plan.rows());  // slots in the order of the list
  EXPECT_TRUE(list.classes[0].items.empty());
  for (const WorkList::OfClass& work : list.classes) {
    for (const AttentionItem& item : work.items) {
      for (int i = 0; i < item.rows; ++i) {
        const int r = RowOf(list, item, i);
        for (int32_t token = item.kv_begin; token < item.kv_end; ++token) {
          const int32_t tile = token / kKvTile;
          const int word = i * item.mask_words + tile - item.mask_tile;
          if (tile >= item.mask_tile &&
              !(list.masks[item.mask_begin + word] >> token % kKvTile & 1))
            continue;
          const auto position = static_cast<int32_t>(seen[r].size());
          ASSERT_EQ(position % kKvTile, token % kKvTile) << "row " << r;
          ASSERT_EQ(position / kChunk, item.split) << "row " << r;
          seen[r].push_back(token < item.prefix
                                ? plan.table[item.table_begin + token / kBlockSize] * kBlockSize +
                                      token % kBlockSize
                                : list.chain[item.chain_begin + token - item.prefix]);
        }
      }
    }
  }
  for (int r = 0; r < plan.rows(); ++r) ASSERT_EQ(seen[r], VisibleSlots(plan, r)) << "row " << r;
}

// Rows that are beginnings of one chain share its tiles.
TEST(CudaExactWorkList, AChainTakesOneTile) {
  const StepPlan plan = MakeForest({{64, 0, {1, 2, 3, 4, 5}}}, 3).plan;
  StepPlan chain = plan;  // MakeForest branches at random: a chain instead
  chain.chain.clear();
  chain.chain_begin = {0};
  for (int r = 0; r < 5; ++r) {
    for (int i = 0; i <= r; ++i) chain.chain.push_back(32 + i);
    chain.chain_begin.push_back(static_cast<int32_t>(chain.chain.size()));
  }
  const WorkList list = MakeWorkList(chain, ExactShapeOf({4, 1, 64}, 1, 3));
  ASSERT_EQ(list.classes[1].items.size(), 1u);
  EXPECT_EQ(list.classes[1].items[0].kv_end, 64 + 5);
}

}  // namespace
}  // namespace coppice::kernels::cuda
