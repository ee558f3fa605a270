// What passes must read (model/memory_traffic.h), counted from plans by hand and by a slower way.
#include "model/memory_traffic.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "tests/testing/thread_communicator.h"

namespace coppice::model {
namespace {

const ReadSizes kSizes = {.layers = 1000,
                          .last_rest = 300,
                          .head = 50,
                          .embedding_row = 7,
                          .kv_token = 4,
                          .windows = {0, 0, 0}};

// Appends a segment. chains: of each row; the rows see so many tokens of their table. The first
// `shared` blocks of the table are those of segment `with`, the others are its own.
void AddSegment(int prefix, const std::vector<std::vector<int32_t>>& chains, StepPlan* plan,
                int shared = 0, int with = 0) {
  const auto segment = static_cast<int32_t>(plan->segments.size());
  for (int block = 0; block * kBlockSize < prefix; ++block) {
    const bool own = block >= shared;
    plan->table.push_back(own ? 1 + 100 * segment + block
                              : int32_t{plan->table[plan->table_begin[with] + block]});
  }
  plan->table_begin.push_back(static_cast<int32_t>(plan->table.size()));
  plan->segments.push_back({plan->rows(), static_cast<int32_t>(chains.size()), prefix});
  for (const std::vector<int32_t>& chain : chains) {
    plan->token.push_back(1);
    plan->position.push_back(prefix - 1 + static_cast<int>(chain.size()));
    plan->chain.insert(plan->chain.end(), chain.begin(), chain.end());
    plan->chain_begin.push_back(static_cast<int32_t>(plan->chain.size()));
  }
}

TEST(MemoryTraffic, BeamsReadTheirPrefixAndSharedTokensOnce) {
  StepPlan plan;
  AddSegment(20, {{160}, {160, 161}, {160, 162}, {163, 164, 165}}, &plan);
  plan.needs.resize(1);
  ReadCounter counter(kSizes);
  counter.Add(plan);
  EXPECT_EQ(counter.total().weights, 1000u + 50 + 4 * 7);
  EXPECT_EQ(counter.total().kv, (20u + 6) * 4 * 3);
  counter.Add(plan);
  EXPECT_EQ(counter.total().kv, 2 * (20u + 6) * 4 * 3);
}

// A layer with a window does not read what lies before the windows of all rows.
TEST(MemoryTraffic, WindowsHideTheBeginOfAContext) {
  StepPlan plan;
  AddSegment(20, {{160}, {160, 161}}, &plan);
  plan.needs.resize(1);
  ReadSizes sizes = kSizes;
  sizes.windows = {0, 5, 30};
  ReadCounter counter(sizes);
  counter.Add(plan);
  // The first row has 21 tokens and sees the last 5.
  EXPECT_EQ(counter.total().kv, (22u + (22 - 16) + 22) * 4);
}

// Weights are read once for all.
TEST(MemoryTraffic, EachSequenceReadsItsOwnContext) {
  StepPlan plan;
  AddSegment(20, {{160}}, &plan);
  AddSegment(20, {{160}, {176}}, &plan);
  plan.needs.resize(3);
  ReadCounter counter(kSizes);
  counter.Add(plan);
  EXPECT_EQ(counter.total().weights, 1000u + 50 + 3 * 7);
  EXPECT_EQ(counter.total().kv, (21u + 22) * 4 * 3);
}

// The first has 10 blocks, the second shares 6 of them, the third 4, the last none.
TEST(MemoryTraffic, SequencesReadASharedPrefixOnce) {
  StepPlan plan;
  AddSegment(160, {{8000}}, &plan);
  AddSegment(60, {{8016}}, &plan);
  AddSegment(100, {{8032}}, &plan, 6, 0);
  AddSegment(70, {{8048}}, &plan, 4, 2);
  plan.needs.resize(1);
  ReadCounter counter(kSizes);
  counter.Add(plan);
  EXPECT_EQ(counter.total().kv, (161u + 61 + 5 + 7) * 4 * 3);
}

// Rows with contexts of 161 and 101 tokens share 6 blocks. With a window of 80 the first sees the
// tokens from 81 on, the second those from 21 on.
TEST(MemoryTraffic, WindowsHideTheBeginOfASharedPrefix) {
  StepPlan plan;
  AddSegment(160, {{8000}}, &plan);
  AddSegment(100, {{8032}}, &plan, 6, 0);
  plan.needs.resize(1);
  ReadSizes sizes = kSizes;
  sizes.windows = {80, 80, 20};
  ReadCounter counter(sizes);
  counter.Add(plan);
  // With a window of 20: 20 tokens each, from 141 and 81 on.
  EXPECT_EQ(counter.total().kv, (2 * (161u - 21 + 5) + 20 + 20) * 4);
}

// A chunk of a prompt: its last row sees all of it. Nothing is decided, so there is no head, and
// nothing of the last layer behind its K and V.
TEST(MemoryTraffic, APassWithoutNeedsEndsEarly) {
  StepPlan plan;
  plan.token = {1, 1, 1, 1};
  plan.position = {30, 31, 32, 33};
  plan.chain_begin = {0, 0, 0, 0, 0};
  plan.segments = {{0, 4, 34}};
  plan.table = {1, 2, 3};
  plan.table_begin = {0, 3};
  ReadCounter counter(kSizes);
  counter.Add(plan);
  EXPECT_EQ(counter.total().weights, 1000u - 300 + 4 * 7);
  EXPECT_EQ(counter.total().kv, 34u * 4 * 2);
}

// Rows of context of a block drafter are no more than their K and V.
TEST(MemoryTraffic, APassOfContextReadsNoKv) {
  StepPlan plan;
  AddSegment(20, {{160}, {160, 161}}, &plan);
  ReadSizes sizes = kSizes;
  sizes.only_stores = true;
  ReadCounter counter(sizes);
  counter.Add(plan);
  EXPECT_EQ(counter.total().weights, 1000u - 300);
  EXPECT_EQ(counter.total().kv, 0u);
  plan.needs.resize(1);
  counter.Add(plan);
  EXPECT_EQ(counter.total().weights, 700u + 1000 + 50 + 2 * 7);
  EXPECT_EQ(counter.total().kv, 22u * 4 * 3);
}

TEST(MemoryTraffic, PlansWithoutRowsReadNothing) {
  StepPlan plan;
  plan.commits = {{16, 32}};
  plan.fetch = {0};
  ReadCounter counter(kSizes);
  counter.Add(plan);
  EXPECT_EQ(counter.total().weights, 0u);
  EXPECT_EQ(counter.total().kv, 0u);
}

TEST(MemoryTraffic, RandomPlansAreCountedAsBySets) {
  std::mt19937 random(1);
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  for (const int window : {0, 1, 30, 64}) {
    ReadSizes sizes = kSizes;
    sizes.windows = {window, window, window};
    ReadCounter counter(sizes);
    uint64_t tokens = 0;
    for (int step = 0; step < 200; ++step) {
      StepPlan plan;
      plan.needs.resize(1);
      std::set<int> in_tables;  // slots that rows see
      std::vector<int> prefixes;
      for (int segments = 1 + below(6); segments > 0; --segments) {
        const int prefix = below(100);
        const int with = prefixes.empty() ? 0 : below(static_cast<int>(prefixes.size()));
        const int shared =
            prefixes.empty() ? 0 : below(std::min(prefix, prefixes[with]) / kBlockSize + 1);
        std::set<int> seen;
        std::vector<std::vector<int32_t>> chains(1 + below(8));
        int shortest = 1000;
        for (auto& chain : chains) {
          for (int length = 1 + below(5); length > 0; --length) {
            chain.push_back(16000 + below(3000));
            if (below(3) == 0) chain.back() = 16000 + below(8);
            seen.insert(chain.back());
          }
          shortest = std::min(shortest, prefix + static_cast<int>(chain.size()));
        }
        AddSegment(prefix, chains, &plan, shared, with);
        prefixes.push_back(prefix);
        for (int t = window == 0 ? 0 : std::max(0, shortest - window); t < prefix; ++t) {
          const int block = plan.table[*(plan.table_begin.end() - 2) + t / kBlockSize];
          in_tables.insert(block * kBlockSize + t % kBlockSize);
        }
        tokens += seen.size();
      }
      tokens += in_tables.size();
      counter.Add(plan);
    }
    EXPECT_EQ(counter.total().kv, tokens * 4 * 3) << "window " << window;
  }
}

TEST(MemoryTraffic, SizesOfRanksAreAddedExactly) {
  test::RunRanks(3, [](comm::Communicator* communicator) {
    const uint64_t rank = communicator->rank();
    const ReadSizes mine = {.layers = (uint64_t{1} << 40) + 12345 + rank,
                            .last_rest = 65535,
                            .head = 65536 * rank,
                            .embedding_row = 4096,
                            .kv_token = 1024,
                            .windows = std::vector<int>(32)};
    const auto sum = SumOverRanks(mine, communicator);
    ASSERT_TRUE(sum.ok()) << sum.status();
    EXPECT_EQ(sum->layers, (uint64_t{3} << 40) + 3 * 12345 + 3);
    EXPECT_EQ(sum->last_rest, 3u * 65535);
    EXPECT_EQ(sum->head, 3u * 65536);
    EXPECT_EQ(sum->kv_token, 3u * 1024);
    EXPECT_EQ(sum->embedding_row, 4096u);
    EXPECT_EQ(sum->windows.size(), 32u);
  });
}

}  // namespace
}  // namespace coppice::model
