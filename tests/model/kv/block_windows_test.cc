// A model with windows: which pages a sequence holds, what the prefix cache keeps of them, and what
// is lost when pages are needed. A block here has a page in a group that sees everything and one in
// a group with a window of 32.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "tests/model/kv/block_manager_fixture.h"

namespace coppice::model {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

constexpr int kWindow = 32;

BlockManager Windowed(int64_t pages, std::vector<int> windows = {0, kWindow}, bool cache = true) {
  return BlockManager({.num_blocks = 200,
                       .scratch_blocks = 1,
                       .prefix_cache = cache,
                       .windows = std::move(windows),
                       .num_pages = pages});
}

void ExpectIntegrity(const BlockManager& blocks) {
  EXPECT_TRUE(blocks.CheckIntegrity().ok()) << blocks.CheckIntegrity();
}

// The pages of blocks, as ranks know them.
class Pages {
 public:
  int32_t Of(BlockManager& blocks, int32_t block, int group) {
    for (const PageChange& change : blocks.TakePageChanges())
      pages_[{change.block, change.group}] = change.page;
    return pages_[{block, group}];
  }

 private:
  std::map<std::pair<int32_t, int>, int32_t> pages_;
};

// The next row, at position n, sees n - 31 and what follows.
TEST(BlockWindowsTest, PagesGoWhenTheWindowHasPassedTheirLastToken) {
  BlockManager blocks = Windowed(40, {0, kWindow}, /*cache=*/false);
  const SequenceHandle a = OpenFilled(blocks, Iota(46));
  EXPECT_EQ(blocks.counts().used, 3 + 3);
  ASSERT_TRUE(blocks.AppendPrefix(a, {7}).ok());
  EXPECT_EQ(blocks.counts().used, 3 + 3);  // the row at 46 sees position 15
  blocks.EndRound();
  EXPECT_EQ(blocks.counts().used, 3 + 2);
  EXPECT_EQ(blocks.counts().free, 39 - 5);
  ExpectIntegrity(blocks);
  Pages pages;
  const int32_t first = blocks.block_table(a)[0];
  EXPECT_NE(pages.Of(blocks, first, 0), 0);
  EXPECT_EQ(pages.Of(blocks, first, 1), 0);
  blocks.Close(a);
  blocks.EndRound();
  EXPECT_EQ(blocks.counts().used, 0);
}

// The step that reads a chunk needs all of it, however long it is.
TEST(BlockWindowsTest, AChunkKeepsItsPagesUntilItHasBeenRead) {
  BlockManager blocks = Windowed(40, {0, kWindow}, /*cache=*/false);
  const SequenceHandle a = blocks.Open({}, nullptr);
  ASSERT_TRUE(blocks.AppendPrefix(a, Iota(160)).ok());
  EXPECT_EQ(blocks.counts().used, 10 + 10);
  blocks.EndRound();
  EXPECT_EQ(blocks.counts().used, 10 + 2);
  ExpectIntegrity(blocks);
}

// What moves to the prefix and is out of the window already gets no page there, and no copy. The
// pool has room for nothing else.
TEST(BlockWindowsTest, ACommitCopiesWhatWillBeSeen) {
  BlockManager blocks = Windowed(1 + 10 + 6, {0, kWindow}, /*cache=*/false);
  const SequenceHandle a = OpenFilled(blocks, Iota(16));
  KvNode node = kPrefixEnd;
  for (int i = 0; i < 64; ++i) node = *blocks.AddNode(a, node, 100 + i);
  const int64_t before = blocks.counts().used;
  EXPECT_EQ(before, 2 + 4 * 2);
  std::vector<KvCopy> copies;
  EXPECT_EQ(*blocks.Commit(a, {{node}}, &copies), 64);
  // The next row, at 80, sees from 49 on: two of the four new blocks.
  EXPECT_THAT(copies, SizeIs(64 + 32));
  EXPECT_EQ(blocks.counts().used, before + 4 + 2);
  ExpectIntegrity(blocks);
  blocks.EndRound();
  EXPECT_EQ(blocks.counts().used, 5 + 2 + 2);  // and the scratch
  ExpectIntegrity(blocks);
}

// A page is given back before its block is full: it lacks what the commit added to the block. So
// nobody may adopt it.
TEST(BlockWindowsTest, ABlockThatACommitFillsBehindTheWindowIsNotAdoptedThere) {
  BlockManager blocks = Windowed(60);
  const SequenceHandle a = OpenFilled(blocks, Iota(40));
  std::vector<TokenId> text = Iota(40);
  KvNode node = kPrefixEnd;
  for (int i = 0; i < 64; ++i) {
    text.push_back(100 + i);
    node = *blocks.AddNode(a, node, text.back());
  }
  std::vector<KvCopy> copies;
  EXPECT_EQ(*blocks.Commit(a, {{node}}, &copies), 64);  // the next row sees from 73 on
  blocks.EndRound();
  ExpectIntegrity(blocks);
  int cached = 0;
  text.resize(49);
  blocks.Open(text, &cached);
  EXPECT_EQ(cached, 32);
  ExpectIntegrity(blocks);
}

// Two sequences share a block. It keeps its page while one of them sees it.
TEST(BlockWindowsTest, TheLastViewerDecides) {
  BlockManager blocks = Windowed(60);
  const SequenceHandle a = OpenFilled(blocks, Iota(33));
  int cached = 0;
  const SequenceHandle b = blocks.Open(Iota(33), &cached);
  ASSERT_EQ(cached, 32);
  const int32_t shared = blocks.block_table(b)[1];
  ASSERT_EQ(shared, blocks.block_table(a)[1]);
  Pages pages;
  ASSERT_TRUE(blocks.AppendPrefix(a, Iota(100)).ok());
  blocks.EndRound();
  EXPECT_NE(pages.Of(blocks, shared, 1), 0);
  ExpectIntegrity(blocks);
  blocks.Close(b);
  blocks.EndRound();
  EXPECT_EQ(pages.Of(blocks, shared, 1), 0);  // idle: ranks need not know of it
  EXPECT_NE(pages.Of(blocks, shared, 0), 0);
  ExpectIntegrity(blocks);
}

// A system prompt that other prompts go on from: its end stays adoptable, though the first sequence
// has gone far beyond it, as long as its pages are not needed.
TEST(BlockWindowsTest, APrefixStaysInTheCacheUntilItsPagesAreNeeded) {
  BlockManager blocks = Windowed(60);
  std::vector<TokenId> first = Iota(160), second = Iota(80);
  for (int i = 0; i < 20; ++i) second.push_back(1000 + i);
  const SequenceHandle a = OpenFilled(blocks, first);
  EXPECT_EQ(blocks.counts().used, 10 + 2);
  EXPECT_EQ(blocks.counts().cached, 8);
  int cached = 0;
  const SequenceHandle b = blocks.Open(second, &cached);
  EXPECT_EQ(cached, 80);
  EXPECT_EQ(blocks.counts().used, 10 + 2 + 2);  // the window before 80 is seen again
  ExpectIntegrity(blocks);
  Pages pages;
  EXPECT_EQ(pages.Of(blocks, blocks.block_table(b)[2], 1), 0);
  EXPECT_NE(pages.Of(blocks, blocks.block_table(b)[3], 1), 0);
  blocks.Close(b);
  blocks.EndRound();
  // All that is left goes to another sequence; `a` keeps what it sees.
  const SequenceHandle c = blocks.Open({}, nullptr);
  const int64_t left = blocks.counts().free + blocks.counts().cached;
  ASSERT_TRUE(blocks.AppendPrefix(c, Iota(static_cast<int>(left / 2) * 16, 5000)).ok());
  EXPECT_LE(blocks.counts().free + blocks.counts().cached, 1);
  blocks.Close(c);
  blocks.EndRound();
  const SequenceHandle d = blocks.Open(second, &cached);
  EXPECT_EQ(cached, 0);  // the end of what is left of it has no window
  // The whole of the first prompt still ends in what `a` sees.
  const SequenceHandle e = blocks.Open(Iota(161), &cached);
  EXPECT_EQ(cached, 160);
  ExpectIntegrity(blocks);
  (void)a, (void)d, (void)e;
}

// Two sequences compute the same prompt. The one that publishes later brings the page that the
// other one has lost.
TEST(BlockWindowsTest, ATwinBringsWhatTheCacheHasLost) {
  BlockManager blocks = Windowed(30, {0, 1});
  const SequenceHandle a = blocks.Open({}, nullptr);
  const SequenceHandle b = blocks.Open({}, nullptr);
  ASSERT_TRUE(blocks.AppendPrefix(a, Iota(40)).ok());
  blocks.EndRound();
  ASSERT_TRUE(blocks.AppendPrefix(b, Iota(15)).ok());
  blocks.EndRound();
  // The idle pages of `a` are needed.
  const SequenceHandle c = blocks.Open({}, nullptr);
  const int64_t left = blocks.counts().free + blocks.counts().cached;
  ASSERT_TRUE(blocks.AppendPrefix(c, Iota(static_cast<int>(left / 2) * 16, 5000)).ok());
  blocks.Close(c);
  blocks.EndRound();
  ASSERT_TRUE(blocks.AppendPrefix(b, {15}).ok());
  blocks.EndRound();
  EXPECT_EQ(blocks.block_table(a)[0], blocks.block_table(b)[0]);
  ExpectIntegrity(blocks);
  int cached = 0;
  blocks.Open(Iota(17), &cached);
  EXPECT_EQ(cached, 16);  // the next row sees itself alone
  ExpectIntegrity(blocks);
}

// All layers have a window: a long sequence holds a few pages and many blocks.
TEST(BlockWindowsTest, ALongSequenceInFewPages) {
  BlockManager blocks = Windowed(9, {kWindow});
  const SequenceHandle a = blocks.Open({}, nullptr);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(blocks.AppendPrefix(a, Iota(16, 16 * i)).ok()) << i;
    blocks.EndRound();
    ASSERT_LE(blocks.counts().used, 3);
  }
  EXPECT_THAT(blocks.block_table(a), SizeIs(100));
  ExpectIntegrity(blocks);
  const auto status = blocks.AppendPrefix(a, Iota(16 * 7)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("needs 7 KV pages, 6 of 8"));
}

// The beginning of a block that has lost pages is not copied.
TEST(BlockWindowsTest, BeginningsComeFromWholeBlocks) {
  for (const bool lost : {false, true}) {
    BlockManager blocks = Windowed(40, {0, 16});
    const SequenceHandle a = OpenFilled(blocks, Iota(64));
    if (lost) {  // `a` sees but the last block; the others' pages go to another sequence
      const SequenceHandle c = blocks.Open({}, nullptr);
      const int64_t left = blocks.counts().free + blocks.counts().cached;
      ASSERT_TRUE(blocks.AppendPrefix(c, Iota(static_cast<int>(left / 2) * 16, 5000)).ok());
      blocks.Close(c);
      blocks.EndRound();
    }
    std::vector<TokenId> prompt = Iota(10);
    prompt.resize(30, 77);
    int cached = 0;
    const SequenceHandle b = blocks.Open(prompt, &cached);
    EXPECT_EQ(cached, 0);
    std::vector<KvCopy> copies;
    EXPECT_EQ(blocks.AdoptBeginning(b, prompt, &copies), lost ? 0 : 10);
    EXPECT_THAT(copies, SizeIs(lost ? 0 : 2 * 10));
    ExpectIntegrity(blocks);
    (void)a;
  }
}

TEST(BlockWindowsTest, WithoutWindowsThereAreNoPages) {
  BlockManager blocks = Make(20);
  OpenFilled(blocks, Iota(40));
  EXPECT_THAT(blocks.TakePageChanges(), IsEmpty());
}

}  // namespace
}  // namespace coppice::model
