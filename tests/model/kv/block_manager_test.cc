#include "model/kv/block_manager.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/model/kv/block_manager_fixture.h"

namespace coppice::model {
namespace {

// Nodes of a level that were added before their tokens were known.
TEST(BlockManagerTest, RelabelledNodesAreFoundWhereTheyBelong) {
  BlockManager blocks = Make(20);
  const SequenceHandle a = OpenFilled(blocks, Iota(5));
  const KvNode left = *blocks.AddNode(a, kPrefixEnd, 50),
               right = *blocks.AddNode(a, kPrefixEnd, 51);
  const KvNode x = *blocks.AddNode(a, left, -1), y = *blocks.AddNode(a, right, -2);
  const KvNode dead = *blocks.AddNode(a, right, -3), below = *blocks.AddNode(a, x, -1);
  const int32_t slot = blocks.slot(a, x);
  blocks.Relabel(a, {{{x, right, 7}, {y, left, 8}, {below, y, 9}}});
  EXPECT_TRUE(blocks.CheckIntegrity().ok()) << blocks.CheckIntegrity();
  EXPECT_EQ(blocks.FindChild(a, right, 7), x);
  EXPECT_EQ(blocks.FindChild(a, left, 8), y);
  EXPECT_EQ(blocks.FindChild(a, y, 9), below);
  EXPECT_EQ(blocks.FindChild(a, left, -1), kNoKv);
  EXPECT_EQ(blocks.slot(a, x), slot);
  std::vector<int32_t> chain;
  blocks.AppendChain(a, below, &chain);
  EXPECT_EQ(chain,
            (std::vector<int32_t>{blocks.slot(a, left), blocks.slot(a, y), blocks.slot(a, below)}));
  blocks.Retain(a, {{below}});
  EXPECT_EQ(blocks.nodes(a), 3);
  EXPECT_TRUE(blocks.CheckIntegrity().ok()) << blocks.CheckIntegrity();
  (void)dead;
}

TEST(BlockManagerTest, NeverHandsOutTheSink) {
  BlockManager blocks = Make(3);
  const SequenceHandle a = blocks.Open({}, nullptr);
  auto slots = blocks.AppendPrefix(a, Iota(2 * kBlockSize));
  ASSERT_TRUE(slots.ok());
  for (int32_t slot : *slots) EXPECT_GE(slot, kBlockSize);
  EXPECT_EQ(blocks.counts().used, 2);
  EXPECT_EQ(blocks.counts().total, 2);
}

TEST(BlockManagerTest, EqualPromptsShareFullBlocksAndLeaveOneRowToCompute) {
  BlockManager blocks = Make(20);
  const SequenceHandle a = OpenFilled(blocks, Iota(32));
  int cached = -1;
  const SequenceHandle b = blocks.Open(Iota(32), &cached);
  EXPECT_EQ(cached, 16);  // not 32: the last token's row is computed
  EXPECT_EQ(blocks.block_table(a)[0], blocks.block_table(b)[0]);
  const SequenceHandle c = blocks.Open(Iota(33), &cached);
  EXPECT_EQ(cached, 32);
  EXPECT_EQ(blocks.block_table(c)[1], blocks.block_table(a)[1]);
  EXPECT_EQ(blocks.cache_queries(), 32 + 32 + 33);
  EXPECT_EQ(blocks.cache_hits(), 16 + 32);
  EXPECT_TRUE(blocks.CheckIntegrity().ok()) << blocks.CheckIntegrity();
}

TEST(BlockManagerTest, DivergingPromptsShareOnlyWhatIsEqualFromTheStart) {
  BlockManager blocks = Make(20);
  std::vector<TokenId> prompt = Iota(48);
  OpenFilled(blocks, prompt);
  prompt[20] = 999;
  int cached = -1;
  blocks.Open(prompt, &cached);
  EXPECT_EQ(cached, 16);
  prompt = Iota(48);
  prompt[0] = 999;  // the tokens of the later blocks are equal, but their prefix is not
  blocks.Open(prompt, &cached);
  EXPECT_EQ(cached, 0);
}

TEST(BlockManagerTest, FilledBlocksAreSharedFromTheNextRoundOn) {
  BlockManager blocks = Make(20);
  const SequenceHandle a = blocks.Open({}, nullptr);
  ASSERT_TRUE(blocks.AppendPrefix(a, Iota(16)).ok());
  int cached = -1;
  blocks.Open(Iota(17), &cached);
  EXPECT_EQ(cached, 0);
  blocks.EndRound();
  blocks.Open(Iota(17), &cached);
  EXPECT_EQ(cached, 16);
}

TEST(BlockManagerTest, AdoptsBlocksThatHaveComeSinceItWasOpened) {
  BlockManager blocks({.num_blocks = 20});
  const std::vector<TokenId> prompt = Iota(50);
  const SequenceHandle first = blocks.Open(prompt, nullptr), second = blocks.Open(prompt, nullptr);
  const auto append = [&](SequenceHandle sequence, int begin, int end) {
    EXPECT_TRUE(
        blocks.AppendPrefix(sequence, absl::MakeSpan(prompt).subspan(begin, end - begin)).ok());
  };
  append(first, 0, 40);
  EXPECT_EQ(blocks.Adopt(second, prompt), 0);  // not computed yet
  blocks.EndRound();
  const uint64_t queries = blocks.cache_queries();
  EXPECT_EQ(blocks.Adopt(second, prompt), 32);
  EXPECT_EQ(blocks.Adopt(second, prompt), 0);
  EXPECT_EQ(blocks.cache_hits(), 32u);
  EXPECT_EQ(blocks.cache_queries(), queries);
  EXPECT_EQ(blocks.prefix_length(second), 32);
  EXPECT_EQ(blocks.block_table(second)[1], blocks.block_table(first)[1]);
  append(first, 40, 49);
  append(second, 32, 33);
  blocks.EndRound();
  EXPECT_EQ(blocks.Adopt(second, prompt), 0);  // in the middle of a block
  const SequenceHandle third = blocks.Open(Iota(40), nullptr);
  EXPECT_EQ(blocks.Adopt(third, prompt), 16);  // the rest of a prompt that has grown
  EXPECT_TRUE(blocks.CheckIntegrity().ok()) << blocks.CheckIntegrity();
  for (const SequenceHandle sequence : {first, second, third}) blocks.Close(sequence);
  blocks.EndRound();
  EXPECT_EQ(blocks.counts().used, 0);
  EXPECT_TRUE(blocks.CheckIntegrity().ok()) << blocks.CheckIntegrity();
}

// Its last block is not published, so no block can be known to follow it.
TEST(BlockManagerTest, NothingIsAdoptedBehindABlockOfThisRound) {
  BlockManager blocks({.num_blocks = 20});
  const SequenceHandle whole = blocks.Open(Iota(50), nullptr);
  ASSERT_TRUE(blocks.AppendPrefix(whole, Iota(48)).ok());
  const SequenceHandle second_half = blocks.Open(Iota(34, 16), nullptr);
  ASSERT_TRUE(blocks.AppendPrefix(second_half, Iota(32, 16)).ok());
  blocks.EndRound();
  std::vector<TokenId> other = Iota(50);
  other[0] = 77;
  const SequenceHandle sequence = blocks.Open(other, nullptr);
  ASSERT_TRUE(blocks.AppendPrefix(sequence, absl::MakeSpan(other).first(16)).ok());
  EXPECT_EQ(blocks.Adopt(sequence, other), 0);
  blocks.EndRound();
  EXPECT_EQ(blocks.Adopt(sequence, other), 0);
  EXPECT_TRUE(blocks.CheckIntegrity().ok()) << blocks.CheckIntegrity();
}

TEST(BlockManagerTest, TwinsComputedInOneRoundBecomeOneBlock) {
  BlockManager blocks = Make(20);
  const SequenceHandle a = blocks.Open({}, nullptr), b = blocks.Open({}, nullptr);
  ASSERT_TRUE(blocks.AppendPrefix(a, Iota(32)).ok());
  ASSERT_TRUE(blocks.AppendPrefix(b, Iota(32)).ok());
  EXPECT_EQ(blocks.counts().used, 4);
  blocks.EndRound();
  EXPECT_EQ(blocks.counts().used, 2);
  EXPECT_EQ(blocks.block_table(a)[1], blocks.block_table(b)[1]);
  EXPECT_TRUE(blocks.CheckIntegrity().ok()) << blocks.CheckIntegrity();
}

TEST(BlockManagerTest, ClosedSequenceOfTheRunningRoundPublishesNothing) {
  BlockManager blocks = Make(20);
  const SequenceHandle a = blocks.Open({}, nullptr);
  ASSERT_TRUE(blocks.AppendPrefix(a, Iota(32)).ok());
  blocks.Close(a);
  blocks.EndRound();
  int cached = -1;
  blocks.Open(Iota(33), &cached);
  EXPECT_EQ(cached, 0);
  EXPECT_EQ(blocks.counts().cached, 0);
}

TEST(BlockManagerTest, UnownedBlocksStayCachedAndTheOldestGoFirst) {
  BlockManager blocks = Make(1 + 4);
  blocks.Close(OpenFilled(blocks, Iota(32)));  // two cached blocks
  blocks.EndRound();
  blocks.Close(OpenFilled(blocks, Iota(32, 100)));
  blocks.EndRound();
  EXPECT_EQ(blocks.counts().cached, 4);
  EXPECT_EQ(blocks.counts().free, 0);
  const SequenceHandle c = blocks.Open({}, nullptr);
  ASSERT_TRUE(blocks.AppendPrefix(c, Iota(1, 500)).ok());
  int cached = -1;
  // The tail of the oldest prompt was evicted. Its head can still be used.
  SequenceHandle again = blocks.Open(Iota(33), &cached);
  EXPECT_EQ(cached, 16);
  blocks.Close(again);
  again = blocks.Open(Iota(33, 100), &cached);
  EXPECT_EQ(cached, 32);
  EXPECT_TRUE(blocks.CheckIntegrity().ok()) << blocks.CheckIntegrity();
}

TEST(BlockManagerTest, ABlockReleasedTwiceInARoundIsEvictedAfterItsChild) {
  BlockManager blocks = Make(1 + 2);
  blocks.Close(OpenFilled(blocks, Iota(32)));
  blocks.EndRound();
  blocks.Close(blocks.Open(Iota(17), nullptr));  // it had only the head
  blocks.Close(blocks.Open(Iota(33), nullptr));  // in the same round, this one had both
  blocks.EndRound();
  const SequenceHandle a = blocks.Open({}, nullptr);
  ASSERT_TRUE(blocks.AppendPrefix(a, Iota(1, 500)).ok());  // evicts the tail
  int cached = -1;
  blocks.Open(Iota(33), &cached);
  EXPECT_EQ(cached, 16);
  EXPECT_TRUE(blocks.CheckIntegrity().ok()) << blocks.CheckIntegrity();
}

TEST(BlockManagerTest, WithoutPrefixCacheNothingIsShared) {
  BlockManager blocks = Make(20, 4, /*cache=*/false);
  OpenFilled(blocks, Iota(32));
  int cached = -1;
  const SequenceHandle b = blocks.Open(Iota(33), &cached);
  EXPECT_EQ(cached, 0);
  std::vector<KvCopy> copies;
  EXPECT_EQ(blocks.AdoptBeginning(b, Iota(33), &copies), 0);
  EXPECT_EQ(blocks.cache_queries(), 0);
  EXPECT_TRUE(blocks.CheckIntegrity().ok());
}

TEST(BlockManagerTest, ExhaustionChangesNothing) {
  BlockManager blocks = Make(1 + 3, /*scratch_blocks=*/1);
  const SequenceHandle a = blocks.Open({}, nullptr);
  EXPECT_EQ(blocks.AppendPrefix(a, Iota(49)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(blocks.prefix_length(a), 0);
  EXPECT_EQ(blocks.counts().free, 3);
  ASSERT_TRUE(blocks.AppendPrefix(a, Iota(32)).ok());
  std::vector<KvNode> nodes;
  for (int i = 0; i < kBlockSize; ++i) {
    auto node = blocks.AddNode(a, i == 0 ? kPrefixEnd : nodes.back(), i);
    ASSERT_TRUE(node.ok());
    nodes.push_back(*node);
  }
  EXPECT_EQ(blocks.AddNode(a, nodes.back(), 1).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(blocks.nodes(a), kBlockSize);
  std::vector<KvCopy> copies;
  EXPECT_EQ(blocks.Commit(a, {nodes.back()}, &copies).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(blocks.chain_length(a, nodes.back()), kBlockSize);
  EXPECT_EQ(blocks.prefix_length(a), 32);
  EXPECT_TRUE(blocks.CheckIntegrity().ok()) << blocks.CheckIntegrity();
}

TEST(BlockManagerTest, EqualChildrenAreOneNode) {
  BlockManager blocks = Make(10);
  const SequenceHandle a = blocks.Open({}, nullptr);
  const KvNode node = *blocks.AddNode(a, kPrefixEnd, 7);
  EXPECT_EQ(*blocks.AddNode(a, kPrefixEnd, 7), node);
  EXPECT_NE(*blocks.AddNode(a, kPrefixEnd, 8), node);
  EXPECT_NE(*blocks.AddNode(a, node, 7), node);
  EXPECT_EQ(blocks.nodes(a), 3);
  EXPECT_EQ(blocks.FindChild(a, node, 9), kNoKv);
}

TEST(BlockManagerTest, CommitMovesWhatAllLeavesShare) {
  BlockManager blocks = Make(10);
  const SequenceHandle a = OpenFilled(blocks, Iota(15));
  const KvNode x = *blocks.AddNode(a, kPrefixEnd, 1), y = *blocks.AddNode(a, x, 2);
  const KvNode left = *blocks.AddNode(a, y, 3), right = *blocks.AddNode(a, y, 4);
  const KvNode dead = *blocks.AddNode(a, x, 5);
  blocks.Retain(a, {left, right, dead});
  const int32_t from_x = blocks.slot(a, x), from_y = blocks.slot(a, y);
  std::vector<KvCopy> copies;
  EXPECT_EQ(*blocks.Commit(a, {left, kPrefixEnd}, &copies), 0);
  EXPECT_EQ(*blocks.Commit(a, {left, right}, &copies), 2);
  ASSERT_EQ(copies.size(), 2);
  EXPECT_EQ(copies[0].source, from_x);
  EXPECT_EQ(copies[0].destination, blocks.block_table(a)[0] * kBlockSize + 15);
  EXPECT_EQ(copies[1].source, from_y);
  EXPECT_EQ(copies[1].destination, blocks.block_table(a)[1] * kBlockSize);
  EXPECT_EQ(blocks.prefix_length(a), 17);
  EXPECT_EQ(blocks.nodes(a), 2);  // `dead` was the child of a committed token
  EXPECT_EQ(blocks.parent(a, left), kPrefixEnd);
  EXPECT_EQ(blocks.chain_length(a, right), 1);
  EXPECT_EQ(*blocks.Commit(a, {left}, &copies), 1);  // a single leaf is shared as a whole
  EXPECT_EQ(blocks.nodes(a), 0);
  EXPECT_TRUE(blocks.CheckIntegrity().ok()) << blocks.CheckIntegrity();
}

TEST(BlockManagerTest, BlockFilledByCommitIsPublishedAtEndRound) {
  BlockManager blocks = Make(10);
  const SequenceHandle a = OpenFilled(blocks, Iota(15));
  const KvNode x = *blocks.AddNode(a, kPrefixEnd, 15);
  std::vector<KvCopy> copies;
  ASSERT_TRUE(blocks.Commit(a, {x}, &copies).ok());
  int cached = -1;
  blocks.Open(Iota(17), &cached);
  EXPECT_EQ(cached, 0);
  blocks.EndRound();
  blocks.Open(Iota(17), &cached);
  EXPECT_EQ(cached, 16);
}

TEST(BlockManagerTest, SlotsFreedInARoundComeBackInTheNext) {
  BlockManager blocks = Make(10, 1);
  const SequenceHandle a = blocks.Open({}, nullptr);
  const int32_t slot = blocks.slot(a, *blocks.AddNode(a, kPrefixEnd, 1));
  blocks.Retain(a, {});
  EXPECT_EQ(blocks.nodes(a), 0);
  EXPECT_NE(blocks.slot(a, *blocks.AddNode(a, kPrefixEnd, 2)), slot);
  blocks.EndRound();
  EXPECT_EQ(blocks.slot(a, *blocks.AddNode(a, kPrefixEnd, 3)), slot);
}

TEST(BlockManagerTest, BlocksOfAClosedSequenceComeBackInTheNextRound) {
  BlockManager blocks = Make(1 + 1);
  SequenceHandle a = blocks.Open({}, nullptr);
  ASSERT_TRUE(blocks.AddNode(a, kPrefixEnd, 1).ok());
  blocks.Close(a);
  a = blocks.Open({}, nullptr);
  EXPECT_FALSE(blocks.AddNode(a, kPrefixEnd, 1).ok());
  blocks.EndRound();
  EXPECT_TRUE(blocks.AddNode(a, kPrefixEnd, 1).ok());
}

TEST(BlockManagerTest, LongBranchFillsItsRunsInOrder) {
  BlockManager blocks = Make(20, /*scratch_blocks=*/1);
  const SequenceHandle a = blocks.Open({}, nullptr);
  KvNode node = kPrefixEnd;
  for (int i = 0; i < kBlockSize; ++i) node = *blocks.AddNode(a, node, i);  // fills the scratch
  std::vector<KvNode> run;
  for (int i = 0; i < 2 * kBlockSize; ++i) run.push_back(node = *blocks.AddNode(a, node, i));
  for (int i = 1; i < 2 * kBlockSize; ++i) {
    if (i == kBlockSize) continue;
    EXPECT_EQ(blocks.slot(a, run[i]), blocks.slot(a, run[i - 1]) + 1);
  }
  EXPECT_EQ(blocks.counts().used, 3);
  blocks.Retain(a, {run[kBlockSize - 1]});
  EXPECT_EQ(blocks.counts().used, 3);
  blocks.EndRound();
  EXPECT_EQ(blocks.counts().used, 2);  // the second run is dead; the first stays where it is
  EXPECT_TRUE(blocks.CheckIntegrity().ok()) << blocks.CheckIntegrity();
}

TEST(BlockManagerTest, ABranchGoesOnInItsRunThoughAnEarlierRunHasRoom) {
  BlockManager blocks = Make(20, /*scratch_blocks=*/0);
  const SequenceHandle a = blocks.Open({}, nullptr);
  KvNode fork = kPrefixEnd, node = kPrefixEnd;
  for (int i = 0; i < kBlockSize; ++i) {
    node = *blocks.AddNode(a, node, i);
    if (i == 7) fork = node;
  }
  for (int i = 0; i < 3; ++i) fork = *blocks.AddNode(a, fork, 100 + i);  // in a second run
  blocks.Retain(a, {fork});
  blocks.EndRound();
  const KvNode next = *blocks.AddNode(a, fork, 200);
  EXPECT_EQ(blocks.slot(a, next), blocks.slot(a, fork) + 1);
  EXPECT_EQ(blocks.counts().used, 2);
}

TEST(BlockManagerTest, ANewRunIsTakenOnlyWhenEveryPlaceIsInUse) {
  BlockManager blocks = Make(100, /*scratch_blocks=*/2);
  const SequenceHandle a = blocks.Open({}, nullptr);
  for (int count = 1; count <= 10 * kBlockSize; ++count) {
    ASSERT_TRUE(blocks.AddNode(a, kPrefixEnd, count).ok());
    EXPECT_EQ(blocks.counts().used, (count + kBlockSize - 1) / kBlockSize);
  }
}

TEST(BlockManagerDeathTest, PrefixCannotGrowBelowLiveNodes) {
  BlockManager blocks = Make(10);
  const SequenceHandle a = blocks.Open({}, nullptr);
  ASSERT_TRUE(blocks.AddNode(a, kPrefixEnd, 1).ok());
  EXPECT_DEATH((void)blocks.AppendPrefix(a, Iota(1)), "live nodes");
  EXPECT_DEATH((void)blocks.slot(a, KvNode{5}), "CHECK|LiveNode|live");
  EXPECT_DEATH(blocks.Close(a + 1), "sequences");
}

}  // namespace
}  // namespace coppice::model
