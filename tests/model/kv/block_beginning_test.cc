// Prompts that end or differ inside of a cached block: BlockManager::AdoptBeginning.
#include <gtest/gtest.h>

#include <vector>

#include "model/kv/block_manager.h"
#include "tests/model/kv/block_manager_fixture.h"

namespace coppice::model {
namespace {

std::vector<TokenId> With(std::vector<TokenId> tokens, int place, TokenId token) {
  tokens[place] = token;
  return tokens;
}

TEST(BlockBeginningTest, TheBeginningOfABlockIsCopied) {
  BlockManager blocks = Make(20);
  const SequenceHandle a = OpenFilled(blocks, Iota(40));
  const std::vector<TokenId> prompt = With(Iota(40), 21, 999);
  const SequenceHandle b = blocks.Open(prompt, nullptr);
  std::vector<KvCopy> copies;
  EXPECT_EQ(blocks.AdoptBeginning(b, prompt, &copies), 5);
  EXPECT_EQ(blocks.prefix_length(b), 21);
  ASSERT_EQ(copies.size(), 5);
  for (int place = 0; place < 5; ++place) {
    EXPECT_EQ(copies[place].source, blocks.block_table(a)[1] * kBlockSize + place);
    EXPECT_EQ(copies[place].destination, blocks.block_table(b)[1] * kBlockSize + place);
  }
  EXPECT_NE(blocks.block_table(a)[1], blocks.block_table(b)[1]);
  EXPECT_EQ(blocks.AdoptBeginning(b, prompt, &copies), 0);  // in the middle of a block
  EXPECT_EQ(blocks.cache_hits(), 16 + 5);
  ASSERT_TRUE(blocks.AppendPrefix(b, absl::MakeSpan(prompt).subspan(21, 18)).ok());
  blocks.EndRound();
  EXPECT_TRUE(blocks.CheckIntegrity().ok()) << blocks.CheckIntegrity();
  int cached = 0;
  blocks.Open(prompt, &cached);  // finds both blocks of b
  EXPECT_EQ(cached, 32);
}

TEST(BlockBeginningTest, OfAPromptThatIsKnownOneTokenIsLeft) {
  BlockManager blocks = Make(20);
  OpenFilled(blocks, Iota(32));
  const SequenceHandle b = blocks.Open(Iota(32), nullptr);
  std::vector<KvCopy> copies;
  EXPECT_EQ(blocks.AdoptBeginning(b, Iota(32), &copies), 15);
  EXPECT_EQ(blocks.prefix_length(b), 31);
  const SequenceHandle c = blocks.Open(Iota(33), nullptr);
  EXPECT_EQ(blocks.AdoptBeginning(c, Iota(33), &copies), 0);  // only the last token is left
  const std::vector<TokenId> late = With(Iota(32), 19, 999);
  EXPECT_EQ(blocks.AdoptBeginning(blocks.Open(late, nullptr), late, &copies), 0);  // only three
  const SequenceHandle d = blocks.Open(Iota(1), nullptr), e = blocks.Open({}, nullptr);
  EXPECT_EQ(blocks.AdoptBeginning(d, Iota(1), &copies), 0);
  EXPECT_EQ(blocks.AdoptBeginning(e, {}, &copies), 0);
  EXPECT_EQ(copies.size(), 15);
}

TEST(BlockBeginningTest, TheBeginningIsThatOfTheBlockPublishedLast) {
  BlockManager blocks = Make(20);
  const SequenceHandle a = OpenFilled(blocks, Iota(16));
  const SequenceHandle b = OpenFilled(blocks, With(Iota(16), 6, 999));
  std::vector<KvCopy> copies;
  const std::vector<TokenId> prompt = With(Iota(16), 9, 888);
  EXPECT_EQ(blocks.AdoptBeginning(blocks.Open(prompt, nullptr), prompt, &copies), 6);
  EXPECT_EQ(copies[0].source / kBlockSize, blocks.block_table(b)[0]);
  EXPECT_NE(copies[0].source / kBlockSize, blocks.block_table(a)[0]);
  EXPECT_TRUE(blocks.CheckIntegrity().ok()) << blocks.CheckIntegrity();
}

TEST(BlockBeginningTest, ABlockIsFoundByItsBeginningThoughAnEarlierOneIsEvicted) {
  BlockManager blocks = Make(4);  // three blocks besides the sink
  blocks.Close(OpenFilled(blocks, Iota(16)));
  blocks.EndRound();
  OpenFilled(blocks, With(Iota(16), 12, 999));
  OpenFilled(blocks, Iota(16, 100));
  const SequenceHandle b = blocks.Open(Iota(16), nullptr);  // whose block is evicted for it
  std::vector<KvCopy> copies;
  EXPECT_EQ(blocks.AdoptBeginning(b, Iota(16), &copies), 12);
  EXPECT_EQ(blocks.AdoptBeginning(blocks.Open(Iota(16), nullptr), Iota(16), &copies), 0);
  blocks.EndRound();
  blocks.Close(b);
  blocks.EndRound();
  EXPECT_EQ(blocks.AdoptBeginning(blocks.Open(Iota(16), nullptr), Iota(16), &copies), 0);
  copies.clear();
  EXPECT_EQ(blocks.AdoptBeginning(blocks.Open(Iota(16), nullptr), Iota(16), &copies), 12);
  EXPECT_TRUE(blocks.CheckIntegrity().ok()) << blocks.CheckIntegrity();
}

TEST(BlockBeginningTest, ThePrefixOfASequenceWithNodesDoesNotGrowByABeginning) {
  BlockManager blocks = Make(20);
  OpenFilled(blocks, Iota(32));
  const SequenceHandle b = blocks.Open(Iota(32), nullptr);
  ASSERT_TRUE(blocks.AddNode(b, kPrefixEnd, 16).ok());
  std::vector<KvCopy> copies;
  EXPECT_EQ(blocks.AdoptBeginning(b, Iota(32), &copies), 0);
  EXPECT_TRUE(copies.empty());
}

// What the pass copies must not be overwritten by another of its copies, which may come first.
TEST(BlockBeginningTest, TheBeginningIsNotCopiedWhereAnotherCopyNeedsTheRoom) {
  for (const bool source : {true, false}) {
    BlockManager blocks = Make(20);
    OpenFilled(blocks, Iota(16));
    const std::vector<TokenId> prompt = With(Iota(16), 9, 888);
    const SequenceHandle probe = blocks.Open(prompt, nullptr);
    std::vector<KvCopy> copies;
    ASSERT_EQ(blocks.AdoptBeginning(probe, prompt, &copies), 9);
    const int32_t next = copies[0].destination / kBlockSize;
    blocks.Close(probe);
    blocks.EndRound();
    const int32_t other = 19 * kBlockSize;
    copies = {source ? KvCopy{next * kBlockSize + 4, other} : KvCopy{other, next * kBlockSize + 4}};
    const SequenceHandle b = blocks.Open(prompt, nullptr);
    EXPECT_EQ(blocks.AdoptBeginning(b, prompt, &copies), 0);
    EXPECT_EQ(copies.size(), 1);
    EXPECT_EQ(blocks.prefix_length(b), 0);
    copies.clear();
    EXPECT_EQ(blocks.AdoptBeginning(b, prompt, &copies), 9);
  }
}

// A block that a commit fills is known before the pass that copies its tokens.
TEST(BlockBeginningTest, TheBeginningIsNotCopiedFromABlockThatTheSamePassFills) {
  BlockManager blocks = Make(20);
  const SequenceHandle a = OpenFilled(blocks, Iota(15));
  std::vector<KvCopy> copies;
  ASSERT_TRUE(blocks.Commit(a, {{*blocks.AddNode(a, kPrefixEnd, 15)}}, &copies).ok());
  blocks.EndRound();
  const std::vector<TokenId> prompt = With(Iota(16), 9, 888);
  const SequenceHandle b = blocks.Open(prompt, nullptr);
  EXPECT_EQ(blocks.AdoptBeginning(b, prompt, &copies), 0);
  EXPECT_EQ(copies.size(), 1);
  copies.clear();  // the pass has run
  EXPECT_EQ(blocks.AdoptBeginning(b, prompt, &copies), 9);
}

TEST(BlockBeginningTest, TheBeginningIsNotCopiedOntoItselfNorWithoutRoom) {
  BlockManager blocks = Make(2);  // one block besides the sink
  const SequenceHandle a = OpenFilled(blocks, Iota(16));
  const std::vector<TokenId> prompt = With(Iota(16), 9, 888);
  std::vector<KvCopy> copies;
  const SequenceHandle b = blocks.Open(prompt, nullptr);
  EXPECT_EQ(blocks.AdoptBeginning(b, prompt, &copies), 0);  // no room
  blocks.Close(a);
  blocks.EndRound();
  EXPECT_EQ(blocks.AdoptBeginning(b, prompt, &copies), 0);  // the room is the block itself
  ASSERT_TRUE(blocks.AppendPrefix(b, prompt).ok());
  const SequenceHandle c = blocks.Open(Iota(16), nullptr);
  EXPECT_EQ(blocks.AdoptBeginning(c, Iota(16), &copies), 0);  // it is evicted
  EXPECT_TRUE(copies.empty());
  EXPECT_TRUE(blocks.CheckIntegrity().ok()) << blocks.CheckIntegrity();
}

}  // namespace
}  // namespace coppice::model
