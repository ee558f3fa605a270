#include "decoding/draft_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "sampling/rng.h"

namespace coppice::decoding {
namespace {

using ::testing::ElementsAre;

PathId Path(PathTree* paths, const std::vector<TokenId>& tokens) {
  PathId path = kRootPath;
  for (const TokenId token : tokens) path = paths->Extend(path, token);
  return path;
}

TEST(RootTreeTest, SharedTokensAreOneNode) {
  PathTree paths;
  const PathId a = Path(&paths, {1, 2, 3, 4}), b = Path(&paths, {1, 2, 3, 5}),
               c = Path(&paths, {1, 2, 6, 4});
  const PathId shared = SharedPath(paths, {a, b, c});
  EXPECT_THAT(paths.Tokens(shared), ElementsAre(1, 2));
  const RootTree roots = MakeRootTree(paths, {a, b, c}, shared);
  EXPECT_EQ(roots.tree.num_roots, 1);
  EXPECT_THAT(roots.tree.token, ElementsAre(3, 4, 5, 6, 4));
  EXPECT_THAT(roots.tree.parent,
              ElementsAre(RootId{0}, NodeId{0}, NodeId{0}, RootId{0}, NodeId{3}));
  EXPECT_THAT(roots.ends, ElementsAre(NodeId{1}, NodeId{2}, NodeId{4}));
}

TEST(RootTreeTest, TheLastTokenOfALoneRootIsItsOwn) {
  PathTree paths;
  const PathId root = Path(&paths, {7, 8}), shared = SharedPath(paths, {root});
  EXPECT_THAT(paths.Tokens(shared), ElementsAre(7));
  const RootTree roots = MakeRootTree(paths, {root}, shared);
  EXPECT_THAT(roots.tree.token, ElementsAre(8));
  EXPECT_THAT(roots.tree.parent, ElementsAre(RootId{0}));
  EXPECT_THAT(roots.ends, ElementsAre(NodeId{0}));
}

TEST(RootTreeTest, RandomRootsAreSpelledWithoutEqualSiblings) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    PathTree paths;
    std::vector<PathId> ends;
    for (size_t n = 1 + random() % 6; n > 0; --n) {
      std::vector<TokenId> tokens(4);
      for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 2);
      ends.push_back(Path(&paths, tokens));
    }
    const PathId shared = SharedPath(paths, ends);
    const RootTree roots = MakeRootTree(paths, ends, shared);
    const TokenTree& tree = roots.tree;
    std::set<std::pair<TreePlace, TokenId>> children;
    for (int i = 0; i < tree.size(); ++i) {
      ASSERT_LT(tree.parent[i], TreePlace(NodeId{i}));
      ASSERT_TRUE(children.insert({tree.parent[i], tree.token[i]}).second);
    }
    const std::vector<uint64_t> hashes = RootHashes(roots, paths.hash(shared));
    for (size_t r = 0; r < ends.size(); ++r) {
      std::vector<TokenId> spelled = paths.Tokens(shared);
      tree.AppendPath(roots.ends[r], &spelled);
      ASSERT_EQ(spelled, paths.Tokens(ends[r]));
      ASSERT_EQ(hashes[r], sampling::HashPath(spelled));
    }
  }
}

}  // namespace
}  // namespace coppice::decoding
