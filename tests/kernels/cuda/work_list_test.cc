#include "kernels/cuda/ops/work_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "tests/kernels/cuda/item_rows.h"
#include "tests/kernels/cuda/random_forest.h"

namespace coppice::kernels::cuda {
namespace {

int64_t TilesOf(const AttentionItem& item) {
  return (item.kv_end - item.kv_begin + kKvTile - 1) / kKvTile;
}

// The slot of a token of the item's KV index space.
int32_t SlotOf(const StepPlan& plan, const WorkList& list, const AttentionItem& item, int token) {
  if (token >= item.prefix) return list.chain[item.chain_begin + token - item.prefix];
  return plan.table[item.table_begin + token / kBlockSize] * kBlockSize + token % kBlockSize;
}

bool Sees(const WorkList& list, const AttentionItem& item, int i, int token) {
  const int tile = token / kKvTile;
  if (tile < item.mask_tile) return true;
  const int word = i * item.mask_words + tile - item.mask_tile;
  return list.masks[item.mask_begin + word] >> token % kKvTile & 1;
}

// Every (row, slot that it sees, KV head) is in one item once, and nothing else is.
void CheckCoverage(const StepPlan& plan, const WorkShape& shape, const WorkList& list) {
  std::map<std::pair<int, int>, std::vector<int32_t>> seen;  // (row, head) -> slots
  for (const WorkList::OfClass& work : list.classes) {
    for (const AttentionItem& item : work.items) {
      ASSERT_EQ(item.kv_begin % kKvTile, 0);
      for (int i = 0; i < item.rows; ++i) {
        std::vector<int32_t>& slots = seen[{RowOf(list, item, i), item.kv_head}];
        for (int token = item.kv_begin; token < item.kv_end; ++token) {
          if (Sees(list, item, i, token)) slots.push_back(SlotOf(plan, list, item, token));
        }
      }
    }
  }
  ASSERT_EQ(seen.size(), static_cast<size_t>(plan.rows() * shape.kv_heads));
  for (auto& [place, slots] : seen) {
    std::vector<int32_t> want = VisibleSlots(plan, place.first);
    std::sort(want.begin(), want.end());
    std::sort(slots.begin(), slots.end());
    ASSERT_EQ(slots, want) << "row " << place.first;
  }
}

// Mask words have no bit behind the item's tokens: those tokens are zeros in shared memory.
void CheckMasks(const WorkList& list) {
  for (const WorkList::OfClass& work : list.classes) {
    for (const AttentionItem& item : work.items) {
      if (item.split + 1 != item.splits || item.mask_words == 0 || item.kv_end % kKvTile == 0) {
        continue;
      }
      for (int r = 0; r < item.rows; ++r) {
        const uint64_t last = list.masks[item.mask_begin + (r + 1) * item.mask_words - 1];
        ASSERT_EQ(last >> item.kv_end % kKvTile, 0u);
      }
    }
  }
}

// Partial results and counters of different row tiles are disjoint and inside of the buffers.
void CheckPartials(const WorkShape& shape, const WorkList& list) {
  std::set<int32_t> merges;
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (int c = 0; c < kTileClasses; ++c) {
    const std::vector<AttentionItem>& items = list.classes[c].items;
    for (size_t i = 0; i < items.size(); ++i) {
      ASSERT_LE(items[i].rows * shape.group, kTileRows[c]);
      ASSERT_LT(items[i].split, items[i].splits);
      if (items[i].split > 0) {
        ASSERT_EQ(items[i].split, items[i - 1].split + 1);
        ASSERT_EQ(items[i].kv_begin, items[i - 1].kv_end);
        ASSERT_EQ(items[i].merge, items[i - 1].merge);
        ASSERT_EQ(items[i].partial, items[i - 1].partial);
      } else if (items[i].splits > 1) {
        ASSERT_TRUE(merges.insert(items[i].merge).second);
        ASSERT_LT(items[i].merge, list.merges);
        ranges.emplace_back(items[i].partial,
                            int64_t{items[i].splits} * PartialFloats(c, shape.head_dim));
      }
    }
  }
  std::sort(ranges.begin(), ranges.end());
  int64_t end = 0;
  for (const auto& [begin, floats] : ranges) {
    ASSERT_GE(begin, end);
    end = begin + floats;
  }
  ASSERT_LE(end, list.partial_floats);
}

void CheckWorkers(const WorkShape& shape, const WorkList& list) {
  for (int c = 0; c < kTileClasses; ++c) {
    const WorkList::OfClass& work = list.classes[c];
    ASSERT_LE(work.worker_begin.size(), static_cast<size_t>(shape.workers[c]) + 1);
    ASSERT_EQ(work.worker_begin.front(), 0);
    ASSERT_EQ(work.worker_begin.back(), static_cast<int32_t>(work.items.size()));
    ASSERT_TRUE(std::is_sorted(work.worker_begin.begin(), work.worker_begin.end()));
  }
}

// The items that worker w passes over, as kernels find them.
std::vector<AttentionItem> ItemsOf(const std::vector<AttentionItem>& by_worker, int w) {
  std::vector<AttentionItem> items;
  for (int32_t i = w; i >= 0; i = by_worker[i].next) items.push_back(by_worker[i]);
  return items;
}

bool Same(const AttentionItem& a, const AttentionItem& b) {
  return a.first_row == b.first_row && a.listed == b.listed && a.kv_head == b.kv_head &&
         a.kv_begin == b.kv_begin && a.kv_end == b.kv_end && a.partial == b.partial &&
         a.split == b.split;
}

void CheckItemsByWorker(const WorkList& list) {
  for (const WorkList::OfClass& work : list.classes) {
    const std::vector<AttentionItem> by_worker = ItemsByWorker(work);
    ASSERT_EQ(by_worker.size(), work.items.size());
    for (size_t w = 0; w + 1 < work.worker_begin.size(); ++w) {
      const std::vector<AttentionItem> items = ItemsOf(by_worker, static_cast<int>(w));
      const auto begin = work.items.begin() + work.worker_begin[w];
      ASSERT_TRUE(std::equal(items.begin(), items.end(), begin,
                             work.items.begin() + work.worker_begin[w + 1], Same));
    }
  }
}

void CheckAll(const StepPlan& plan, const WorkShape& shape) {
  const WorkList list = MakeWorkList(plan, shape);
  CheckWorkers(shape, list);
  CheckItemsByWorker(list);
  CheckPartials(shape, list);
  CheckMasks(list);
  CheckCoverage(plan, shape, list);
}

WorkShape SomeShape(int trial, std::mt19937_64* generator) {
  WorkShape shape;
  shape.group = std::vector<int>{1, 4, 5, 7, 8}[trial % 5];
  shape.kv_heads = 1 + trial % 3;
  shape.head_dim = 64;
  shape.least_tiles = 1 + trial % 4;
  for (int& workers : shape.workers) workers = 1 + static_cast<int>((*generator)() % 40);
  return shape;
}

// The shape of Llama-3.1-8B on a device of 132 multiprocessors, as the backend makes it, or without
// finer cuts.
WorkShape LlamaShape(bool finer) {
  WorkShape shape;
  shape.group = 4;
  shape.kv_heads = 8;
  shape.head_dim = 128;
  shape.workers[0] = 3 * 132;
  shape.workers[1] = shape.workers[2] = 2 * 132;
  shape.multiprocessors = finer ? 132 : 0;
  return shape;
}
// Blocks of each class.
std::vector<int> BlocksOf(const RequestSpec& request, bool finer) {
  const StepPlan plan = MakeForest({request}, 1).plan;
  CheckAll(plan, LlamaShape(finer));
  const WorkList list = MakeWorkList(plan, LlamaShape(finer));
  std::vector<int> blocks;
  for (const WorkList::OfClass& work : list.classes)
    blocks.push_back(static_cast<int>(work.worker_begin.size()) - 1);
  return blocks;
}

TEST(CudaWorkList, AListWithFewerItemsThanMultiprocessorsIsCutFiner) {
  const std::vector<int> forest(32, 1);
  using Blocks = std::vector<int>;
  EXPECT_EQ(BlocksOf({1023, 0, {1}}, false), (Blocks{32, 0, 0}));
  EXPECT_EQ(BlocksOf({1023, 0, {1}}, true), (Blocks{64, 0, 0}));
  EXPECT_EQ(BlocksOf({1024, 0, forest}, false), (Blocks{0, 0, 40}));
  EXPECT_EQ(BlocksOf({1024, 0, forest}, true), (Blocks{0, 77, 0}));
  // Long contexts have enough.
  for (const bool finer : {false, true}) {
    EXPECT_EQ(BlocksOf({8191, 0, {1}}, finer), (Blocks{256, 0, 0}));
    EXPECT_EQ(BlocksOf({8192, 0, forest}, finer), (Blocks{0, 0, 257}));
  }
}

// Heads that no narrower row tile holds.
TEST(CudaWorkList, RowTilesAreNarrowedOnlyWhereARowFits) {
  const StepPlan plan = MakeForest({{100, 0, {1}}}, 1).plan;
  WorkShape shape = LlamaShape(true);
  shape.group = kTileRows[1] + 1;
  CheckAll(plan, shape);
  EXPECT_FALSE(MakeWorkList(plan, shape).classes[2].items.empty());
}

TEST(CudaWorkList, SoonestTilesWeighsTheMergeAgainstTheTokens) {
  EXPECT_EQ(SoonestTiles(16, 4, 4), 2);
  EXPECT_EQ(SoonestTiles(16, 128, 4), 4);  // a merge of 16 parts would take longer than the tokens
  EXPECT_EQ(SoonestTiles(2, 4, 4), 1);
  EXPECT_EQ(SoonestTiles(2, 64, 4), 2);
}

TEST(CudaWorkList, CoversEveryRowTokenAndHeadOnce) {
  std::mt19937_64 generator(1);
  for (int trial = 0; trial < 40; ++trial) {
    std::vector<RequestSpec> requests(1 + generator() % 5);
    for (RequestSpec& request : requests) {
      request.prefix =
          static_cast<int>(generator() % 3 == 0 ? generator() % 700 : generator() % 70);
      request.prefill_rows = static_cast<int>(generator() % (std::min(request.prefix, 90) + 1));
      request.chains = RandomChains(static_cast<int>(generator() % 70), 6, generator());
    }
    WorkShape shape = SomeShape(trial, &generator);
    CheckAll(MakeForest(requests, trial).plan, shape);
    shape.multiprocessors = static_cast<int>(generator() % 100);
    CheckAll(MakeForest(requests, trial).plan, shape);
    shape.exact = true;
    CheckAll(MakeForest(requests, trial).plan, shape);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(CudaWorkList, CoversRequestsThatShareBlocks) {
  std::mt19937_64 generator(2);
  int joined = 0;
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<RequestSpec> requests(2 + generator() % 6);
    for (size_t i = 0; i < requests.size(); ++i) {
      RequestSpec& request = requests[i];
      if (i > 0) request.with = static_cast<int>(generator() % i);
      const int most = i == 0 ? 0 : requests[request.with].prefix / kBlockSize;
      request.common = kBlockSize * static_cast<int>(generator() % (most + 1));
      request.prefix = request.common + static_cast<int>(generator() % (i == 0 ? 700 : 200));
      request.prefill_rows =
          static_cast<int>(generator() % (std::min(request.prefix - request.common, 20) + 1));
      request.chains = RandomChains(static_cast<int>(generator() % 9), 6, generator());
    }
    WorkShape shape = SomeShape(trial, &generator);
    const StepPlan plan = MakeForest(requests, trial).plan;
    CheckAll(plan, shape);
    joined += !MakeWorkList(plan, shape).rows.empty();
    shape.exact = true;
    CheckAll(plan, shape);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GE(joined, 15);
}

// Tokens that the items of a head read, counted once for each item.
int64_t TokensRead(const WorkList& list, int kv_head) {
  int64_t tokens = 0;
  for (const WorkList::OfClass& work : list.classes) {
    for (const AttentionItem& item : work.items) {
      if (item.kv_head == kv_head) tokens += item.kv_end - item.kv_begin;
    }
  }
  return tokens;
}

WorkShape ShapeOfHeads(int group, int workers) {
  WorkShape shape;
  shape.group = group;
  shape.head_dim = 128;
  for (int& count : shape.workers) count = workers;
  return shape;
}

TEST(CudaWorkList, RequestsReadACommonPrefixOnce) {
  std::vector<RequestSpec> requests = {{2000 + 37, 0, {1}}};
  int64_t own = 37 + 1;
  for (int i = 1; i < 16; ++i) {
    requests.push_back({2000 + 5 * i, 0, {1, 2}, 2000, 0});
    own += 5 * i;
  }
  const StepPlan plan = MakeForest(requests, 1).plan;
  for (int row = 1; row < plan.rows(); ++row) own += plan.chain_length(row) > 0;
  const WorkList list = MakeWorkList(plan, ShapeOfHeads(4, 132));
  CheckCoverage(plan, ShapeOfHeads(4, 132), list);
  std::set<int32_t> chains(plan.chain.begin(), plan.chain.end());
  const int64_t in_tables = 2000 + 37 + 5 * (15 * 16 / 2);
  EXPECT_EQ(TokensRead(list, 0), in_tables + static_cast<int64_t>(chains.size()));
}

// The first two share 640 tokens, the third 320 of these, the fourth none.
TEST(CudaWorkList, WhatSomeOfTheRowsShareIsReadOnce) {
  const std::vector<RequestSpec> requests = {
      {700, 0, {1}}, {320 + 9, 0, {1}, 320, 0}, {500, 0, {1}}, {640 + 8, 0, {1}, 640, 0}};
  const StepPlan plan = MakeForest(requests, 1).plan;
  const WorkList list = MakeWorkList(plan, ShapeOfHeads(4, 1));
  CheckCoverage(plan, ShapeOfHeads(4, 1), list);
  EXPECT_EQ(TokensRead(list, 0), (700 + 9 + 8 + 3) + (500 + 1));
}

// Where little is shared, a request has much more of its own, or there are more rows than a row
// tile holds, each request has its own row tiles.
TEST(CudaWorkList, RequestsAreJoinedOnlyWhereItPays) {
  const auto joined = [](const RequestSpec& second, bool windows) {
    StepPlan plan = MakeForest({{second.common + 12, 0, {1}}, second}, 1).plan;
    if (windows) plan.groups.resize(2);
    const WorkList list = MakeWorkList(plan, ShapeOfHeads(4, 1));
    CheckCoverage(plan, ShapeOfHeads(4, 1), list);
    return list.classes[0].items.size() + list.classes[1].items.size() +
               list.classes[2].items.size() ==
           1;
  };
  const std::vector<int> many(31, 1), too_many(32, 1);
  EXPECT_TRUE(joined({140 + 20, 0, {1}, 128, 0}, false));
  EXPECT_FALSE(joined({112 + 20, 0, {1}, 112, 0}, false));
  EXPECT_TRUE(joined({160 + 640, 0, {1}, 160, 0}, false));
  EXPECT_FALSE(joined({160 + 641, 0, {1}, 160, 0}, false));
  EXPECT_TRUE(joined({320 + 512, 0, {1}, 320, 0}, true));
  EXPECT_FALSE(joined({320 + 513, 0, {1}, 320, 0}, true));
  EXPECT_TRUE(joined({660, 0, many, 640, 0}, false));
  EXPECT_FALSE(joined({660, 0, too_many, 640, 0}, false));
}

// With shared chains rows see what they saw, and every row tile of a segment has the slots of all.
TEST(CudaWorkList, SharedChainsAreOfWholeSegments) {
  std::vector<RequestSpec> requests(2);
  for (RequestSpec& request : requests) {
    request.prefix = 100;
    request.chains = RandomChains(60, 6, 3);
  }
  WorkShape shape;
  shape.group = 8;  // 16 rows a tile
  shape.head_dim = 64;
  const StepPlan plan = MakeForest(requests, 1).plan;
  const WorkList list = MakeWorkList(plan, shape, /*shared_chains=*/true);
  CheckCoverage(plan, shape, list);
  std::map<int, std::set<std::vector<int32_t>>> chains;  // of a segment's items, by its table
  int tiles = 0;
  for (const WorkList::OfClass& work : list.classes) {
    for (const AttentionItem& item : work.items) {
      if (item.split + 1 != item.splits) continue;
      const auto begin = list.chain.begin() + item.chain_begin;
      chains[item.table_begin].emplace(begin, begin + item.kv_end - item.prefix);
      ++tiles;
    }
  }
  EXPECT_EQ(chains.size(), 2u);
  EXPECT_GE(tiles, 8);
  for (const auto& [table, of_segment] : chains) EXPECT_EQ(of_segment.size(), 1u) << table;
}

TEST(CudaWorkList, SharedChainsKeepRequestsApart) {
  const StepPlan plan = MakeForest({{650, 0, {1, 2}}, {640 + 10, 0, {1, 2}, 640, 0}}, 1).plan;
  const WorkList list = MakeWorkList(plan, ShapeOfHeads(4, 1), /*shared_chains=*/true);
  EXPECT_EQ(list.classes[0].items.size(), 2u);
}

TEST(CudaWorkList, EmptyPlanAndRowsThatSeeNothing) {
  WorkShape shape;
  shape.head_dim = 64;
  const WorkList nothing = MakeWorkList(StepPlan(), shape);
  for (const WorkList::OfClass& work : nothing.classes) EXPECT_TRUE(work.items.empty());
  StepPlan plan;
  plan.token = plan.slot = {0, 0};
  plan.position = {-1, -1};  // padded rows
  plan.chain_begin = {0, 0, 0};
  plan.segments = {{0, 2, 0}};
  plan.table_begin = {0, 0};
  const WorkList padded = MakeWorkList(plan, shape);
  ASSERT_EQ(padded.classes[0].items.size(), 1u);  // it writes their zeros
  EXPECT_EQ(padded.classes[0].items[0].kv_end, 0);
}

// The most loaded worker has at most 15 % more than the mean, or the few KV tiles more that an item
// may not be cut below.
void CheckBalance(const std::vector<RequestSpec>& requests, int group, int kv_heads, int workers) {
  WorkShape shape;
  shape.group = group;
  shape.kv_heads = kv_heads;
  shape.head_dim = 128;
  for (int& count : shape.workers) count = workers;
  const WorkList list = MakeWorkList(MakeForest(requests, 7).plan, shape);
  for (const WorkList::OfClass& work : list.classes) {
    if (work.items.empty()) continue;
    double total = 0, most = 0;
    for (size_t w = 0; w + 1 < work.worker_begin.size(); ++w) {
      double cost = 0;
      for (int i = work.worker_begin[w]; i < work.worker_begin[w + 1]; ++i) {
        cost += kItemCost + static_cast<double>(TilesOf(work.items[i]));
      }
      total += cost;
      most = std::max(most, cost);
    }
    const double mean = total / workers;
    const double grain = shape.least_tiles + kItemCost;
    EXPECT_LE(most, std::max(1.15 * mean, mean + grain))
        << requests.size() << " requests, " << kv_heads << " heads, " << workers << " workers";
  }
}

TEST(CudaWorkList, BalancesWithin15Percent) {
  const std::vector<int> forest = RandomChains(32, 5, 1);
  for (const int workers : {1, 7, 66, 132, 264}) {
    for (const int kv_heads : {1, 2, 8}) {
      CheckBalance({{8192, 0, forest}}, 4, kv_heads, workers);
      CheckBalance(std::vector<RequestSpec>(8, {4097, 0, forest}), 4, kv_heads, workers);
      CheckBalance(std::vector<RequestSpec>(64, {1000, 0, {1}}), 4, kv_heads, workers);
      std::vector<RequestSpec> mixed;
      for (int i = 0; i < 24; ++i) mixed.push_back({37 * i * i, std::min(i, 3), {1, 2, 2, 3}});
      CheckBalance(mixed, 8, kv_heads, workers);
      CheckBalance({{3000, 512, {}}, {9000, 0, forest}}, 4, kv_heads, workers);
    }
  }
}

}  // namespace
}  // namespace coppice::kernels::cuda
