#include "coordinator/cluster/prefix_index.h"

#include <gtest/gtest.h>

#include <numeric>

#include "plan/step_plan.h"

namespace coppice::coordinator {
namespace {

std::vector<TokenId> Count(int tokens, TokenId first = 0) {
  std::vector<TokenId> prompt(tokens);
  std::iota(prompt.begin(), prompt.end(), first);
  return prompt;
}

TEST(PrefixIndex, AChainHasTheFullBlocksBeforeTheLastToken) {
  EXPECT_EQ(PrefixIndex::ChainOf({}).size(), 0);
  EXPECT_EQ(PrefixIndex::ChainOf(Count(kBlockSize)).size(), 0);
  EXPECT_EQ(PrefixIndex::ChainOf(Count(kBlockSize + 1)).size(), 1);
  EXPECT_EQ(PrefixIndex::ChainOf(Count(10 * kBlockSize + 5)).size(), 10);
  EXPECT_EQ(PrefixIndex::ChainOf(Count(40000)).size(), PrefixIndex::kMaxChain);
}

TEST(PrefixIndex, ABlockStandsForEverythingBeforeIt) {
  std::vector<TokenId> one = Count(100), other = one;
  other[3] = 77;
  const std::vector<uint64_t> a = PrefixIndex::ChainOf(one), b = PrefixIndex::ChainOf(other);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NE(a[i], b[i]);
}

TEST(PrefixIndex, MatchesTheCommonBeginningOfEachReplica) {
  PrefixIndex index;
  std::vector<TokenId> prompt = Count(100), other = prompt;
  other[50] = 77;  // in the fourth block
  index.Add("a", PrefixIndex::ChainOf(prompt), 1000);
  EXPECT_EQ(index.Match("a", PrefixIndex::ChainOf(prompt)), 6);
  EXPECT_EQ(index.Match("a", PrefixIndex::ChainOf(other)), 3);
  EXPECT_EQ(index.Match("b", PrefixIndex::ChainOf(prompt)), 0);
  index.Forget("a");
  EXPECT_EQ(index.Match("a", PrefixIndex::ChainOf(prompt)), 0);
}

TEST(PrefixIndex, ForgetsWhatWasSentLongestAgoAndEndsFirst) {
  PrefixIndex index;
  const std::vector<uint64_t> a = PrefixIndex::ChainOf(Count(81)),
                              b = PrefixIndex::ChainOf(Count(81, 1000)),
                              c = PrefixIndex::ChainOf(Count(33, 2000));
  index.Add("r", a, 10);
  index.Add("r", b, 10);
  index.Add("r", a, 10);
  index.Add("r", c, 10);
  EXPECT_EQ(index.size("r"), 10);
  EXPECT_EQ(index.Match("r", a), 5);
  EXPECT_EQ(index.Match("r", b), 3);
  EXPECT_EQ(index.Match("r", c), 2);
}

TEST(PrefixIndex, MemoryIsBoundedWhateverIsSent) {
  PrefixIndex index;
  for (int i = 0; i < 40; ++i)
    index.Add("r", PrefixIndex::ChainOf(Count(40000, i * 50000)), int64_t{1} << 40);
  EXPECT_EQ(index.size("r"), PrefixIndex::kMaxBlocks);
}

}  // namespace
}  // namespace coppice::coordinator
