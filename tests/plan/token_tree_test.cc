#include "plan/token_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <type_traits>

namespace coppice {
namespace {

using ::testing::ElementsAre;

static_assert(sizeof(TreePlace) == sizeof(int32_t), "a place costs as much as an index");
static_assert(!std::is_convertible_v<int, TreePlace>, "an index alone says neither root nor node");
static_assert(!std::is_convertible_v<NodeId, RootId> && !std::is_convertible_v<RootId, NodeId>);
static_assert(!std::is_convertible_v<TreePlace, int>);

// Root 0: 7 -> 8, 9; root 1: 7.
TokenTree SmallTree() {
  TokenTree tree;
  tree.num_roots = 2;
  const NodeId seven = tree.Add(RootId{0}, 7);
  tree.Add(RootId{1}, 7);
  tree.Add(seven, 8);
  tree.Add(seven, 9);
  return tree;
}

TEST(TreePlaceTest, IsARootOrANode) {
  EXPECT_TRUE(TreePlace(RootId{3}).is_root());
  EXPECT_EQ(TreePlace(RootId{3}).root(), RootId{3});
  EXPECT_FALSE(TreePlace(NodeId{3}).is_root());
  EXPECT_EQ(TreePlace(NodeId{3}).node(), NodeId{3});
  EXPECT_NE(TreePlace(RootId{0}), TreePlace(NodeId{0}));
  EXPECT_EQ(TreePlace(), TreePlace(RootId{0}));
}

TEST(TreePlaceTest, EveryCodeOfAMessageIsAPlaceThatWritesItBack) {
  EXPECT_EQ(TreePlace(RootId{2}).code(), -3);
  EXPECT_EQ(TreePlace(NodeId{2}).code(), 2);
  for (const int32_t code : {INT32_MIN, -2, -1, 0, 1, INT32_MAX}) {
    const TreePlace place = TreePlace::FromCode(code);
    EXPECT_EQ(place.code(), code);
    EXPECT_EQ(place, place.is_root() ? TreePlace(place.root()) : TreePlace(place.node()));
  }
}

TEST(TokenTreeTest, HasItsRootsAndItsNodesAlone) {
  const TokenTree tree = SmallTree();
  EXPECT_TRUE(tree.Has(RootId{1}) && tree.Has(NodeId{3}));
  EXPECT_FALSE(tree.Has(RootId{2}) || tree.Has(NodeId{4}));
  EXPECT_FALSE(tree.Has(TreePlace::FromCode(INT32_MIN)));
}

TEST(TokenTreeTest, RowsAreRootsFirst) {
  const TokenTree tree = SmallTree();
  EXPECT_EQ(tree.rows(), 6);
  EXPECT_EQ(tree.RowOf(RootId{1}), 1);
  EXPECT_EQ(tree.RowOf(NodeId{0}), 2);
  for (int row = 0; row < tree.rows(); ++row) EXPECT_EQ(tree.RowOf(tree.PlaceOf(row)), row);
}

TEST(TokenTreeTest, APathIsReadFromTheRootDown) {
  const TokenTree tree = SmallTree();
  EXPECT_EQ(tree.RootOf(NodeId{3}), RootId{0});
  EXPECT_EQ(tree.RootOf(NodeId{1}), RootId{1});
  EXPECT_EQ(tree.RootOf(RootId{1}), RootId{1});
  std::vector<TokenId> tokens = {1};
  tree.AppendPath(NodeId{3}, &tokens);
  EXPECT_THAT(tokens, ElementsAre(1, 7, 9));
  tree.AppendPath(RootId{0}, &tokens);
  EXPECT_THAT(tokens, ElementsAre(1, 7, 9));
}

TEST(TokenTreeTest, AtReadsTheArrayOfThePlace) {
  const std::vector<int> of_root = {10, 11}, of_node = {20, 21};
  EXPECT_EQ(At(RootId{1}, of_root, of_node), 11);
  EXPECT_EQ(At(NodeId{0}, of_root, of_node), 20);
}

TEST(TokenTreeDeathTest, AChildComesAfterItsParent) {
  TokenTree tree = SmallTree();
  EXPECT_DEATH(tree.Add(NodeId{4}, 1), "Has");
  EXPECT_DEATH(tree.Add(RootId{2}, 1), "Has");
}

}  // namespace
}  // namespace coppice
