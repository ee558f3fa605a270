#include "model/kv/prefix_readers.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace coppice::model {
namespace {

std::vector<TokenId> FirstTokens(int length) {
  std::vector<TokenId> tokens(length);
  std::iota(tokens.begin(), tokens.end(), 1);
  return tokens;
}

TEST(PrefixReadersTest, WaitsForTheBlocksThatAnotherComputes) {
  const std::vector<TokenId> prompt = FirstTokens(70);
  PrefixReaders readers;
  EXPECT_FALSE(readers.MustWait(prompt, 0));
  EXPECT_TRUE(readers.MustWait(prompt, 0));
  EXPECT_TRUE(readers.MustWait(prompt, 32));
  EXPECT_FALSE(readers.MustWait(prompt, 48));  // what is left is less than two blocks
}

TEST(PrefixReadersTest, OnlyEqualBeginningsCount) {
  const std::vector<TokenId> prompt = FirstTokens(70);
  std::vector<TokenId> early = prompt, late = prompt;
  early[0] = late[32] = 99;
  PrefixReaders readers;
  EXPECT_FALSE(readers.MustWait(prompt, 0));
  EXPECT_FALSE(readers.MustWait(early, 0));
  EXPECT_TRUE(readers.MustWait(late, 0));
  EXPECT_FALSE(readers.MustWait(late, 16));
  EXPECT_TRUE(readers.MustWait(late, 16));  // for the one before it
}

// The last token of a prompt is not a part of its blocks: it is the root of the first round.
TEST(PrefixReadersTest, TheBlocksMustLieBeforeTheLastTokenOfBoth) {
  const std::vector<TokenId> whole = FirstTokens(33), cut = FirstTokens(32);
  PrefixReaders of_cut, of_whole;
  EXPECT_FALSE(of_cut.MustWait(cut, 0));
  EXPECT_FALSE(of_cut.MustWait(whole, 0));
  EXPECT_FALSE(of_whole.MustWait(whole, 0));
  EXPECT_FALSE(of_whole.MustWait(cut, 0));
  EXPECT_TRUE(of_whole.MustWait(whole, 0));
}

// It could not adopt.
TEST(PrefixReadersTest, ASequenceInTheMiddleOfABlockReadsOn) {
  const std::vector<TokenId> prompt = FirstTokens(70);
  PrefixReaders readers;
  EXPECT_FALSE(readers.MustWait(prompt, 0));
  EXPECT_FALSE(readers.MustWait(prompt, 5));
}

}  // namespace
}  // namespace coppice::model
