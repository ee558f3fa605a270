#include "worker/root_trie.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

namespace coppice::worker {
namespace {

using ::testing::ElementsAre;

decoding::PathId Path(decoding::PathTree* paths, const std::vector<TokenId>& tokens) {
  decoding::PathId path = decoding::kRootPath;
  for (const TokenId token : tokens) path = paths->Extend(path, token);
  return path;
}

TEST(RootTrieTest, SharedTokensAreOneEntry) {
  decoding::PathTree paths;
  const decoding::PathId a = Path(&paths, {1, 2, 3, 4}), b = Path(&paths, {1, 2, 3, 5}),
                         c = Path(&paths, {1, 2, 6, 4});
  const RootTrie trie = MakeRootTrie(paths, {a, b, c});
  EXPECT_THAT(paths.Tokens(trie.stable), ElementsAre(1, 2));
  EXPECT_THAT(trie.token, ElementsAre(3, 4, 5, 6, 4));
  EXPECT_THAT(trie.parent, ElementsAre(-1, 0, 0, -1, 3));
  EXPECT_THAT(trie.root, ElementsAre(1, 2, 4));
}

TEST(RootTrieTest, TheLastTokenOfALoneRootIsItsOwn) {
  decoding::PathTree paths;
  const RootTrie trie = MakeRootTrie(paths, {Path(&paths, {7, 8})});
  EXPECT_THAT(paths.Tokens(trie.stable), ElementsAre(7));
  EXPECT_THAT(trie.token, ElementsAre(8));
  EXPECT_THAT(trie.parent, ElementsAre(-1));
  EXPECT_THAT(trie.root, ElementsAre(0));
}

TEST(RootTrieTest, RandomRootsAreSpelledWithoutEqualSiblings) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    decoding::PathTree paths;
    std::vector<decoding::PathId> roots;
    for (size_t n = 1 + random() % 6; n > 0; --n) {
      std::vector<TokenId> tokens(4);
      for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 2);
      roots.push_back(Path(&paths, tokens));
    }
    const RootTrie trie = MakeRootTrie(paths, roots);
    std::set<std::pair<int32_t, TokenId>> children;
    for (size_t i = 0; i < trie.token.size(); ++i) {
      ASSERT_LT(trie.parent[i], static_cast<int32_t>(i));
      ASSERT_TRUE(children.insert({trie.parent[i], trie.token[i]}).second);
    }
    for (size_t r = 0; r < roots.size(); ++r) {
      std::vector<TokenId> reversed;
      for (int32_t entry = trie.root[r]; entry >= 0; entry = trie.parent[entry])
        reversed.push_back(trie.token[entry]);
      std::vector<TokenId> spelled = paths.Tokens(trie.stable);
      spelled.insert(spelled.end(), reversed.rbegin(), reversed.rend());
      ASSERT_EQ(spelled, paths.Tokens(roots[r]));
    }
  }
}

}  // namespace
}  // namespace coppice::worker
