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

// Appends a segment. chains: of each row; the rows see so many tokens of their table.
void AddSegment(int prefix, const std::vector<std::vector<int32_t>>& chains, StepPlan* plan) {
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

// Attention reads a shared prefix for each of its sequences; weights are read once for all.
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

// A chunk of a prompt: its last row sees all of it. Nothing is decided, so there is no head, and
// nothing of the last layer behind its K and V.
TEST(MemoryTraffic, APassWithoutNeedsEndsEarly) {
  StepPlan plan;
  plan.token = {1, 1, 1, 1};
  plan.position = {30, 31, 32, 33};
  plan.chain_begin = {0, 0, 0, 0, 0};
  plan.segments = {{0, 4, 34}};
  ReadCounter counter(kSizes);
  counter.Add(plan);
  EXPECT_EQ(counter.total().weights, 1000u - 300 + 4 * 7);
  EXPECT_EQ(counter.total().kv, 34u * 4 * 2);
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
  ReadCounter counter(kSizes);
  uint64_t tokens = 0;
  for (int step = 0; step < 200; ++step) {
    StepPlan plan;
    plan.needs.resize(1);
    for (int segments = 1 + below(4); segments > 0; --segments) {
      const int prefix = below(100);
      std::set<int> seen;
      std::vector<std::vector<int32_t>> chains(1 + below(8));
      for (auto& chain : chains) {
        for (int length = 1 + below(5); length > 0; --length) {
          chain.push_back(16 + below(3000));
          if (below(3) == 0) chain.back() = 16 + below(8);
          seen.insert(chain.back());
        }
      }
      AddSegment(prefix, chains, &plan);
      tokens += prefix + seen.size();
    }
    counter.Add(plan);
  }
  EXPECT_EQ(counter.total().kv, tokens * 4 * 3);
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
