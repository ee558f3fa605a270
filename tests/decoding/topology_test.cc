// Static draft trees: what each notation means, and what is refused.
#include "decoding/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace coppice::decoding {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(TopologyTest, CountsPerLevel) {
  const Topology tree = ParseTopology("4-2-1-1").value();
  EXPECT_EQ(tree.depth(), 4);
  EXPECT_THAT(tree.LayerSizes(), ElementsAre(4, 8, 8, 8));
  EXPECT_EQ(tree.Nodes(4), 28);
  EXPECT_EQ(tree.Nodes(0), 0);
  EXPECT_EQ(tree.Nodes(2), 12);
  EXPECT_EQ(tree.Nodes(9), 28);
  EXPECT_EQ(tree.Widest(4), 8);
  EXPECT_EQ(tree.MostChildren(), 4);
  EXPECT_EQ(tree.Widest(1), 4);
  EXPECT_EQ(tree.Children(0, 0), 4);
  EXPECT_EQ(tree.Children(1, 3), 2);
  EXPECT_EQ(tree.FirstChild(1, 3), 6);
  EXPECT_EQ(tree.Children(4, 0), 0);
}

TEST(TopologyTest, OpenTreesGoToTheDraftDepth) {
  const Topology chain = ParseTopology("chain").value();
  EXPECT_EQ(chain.Nodes(7), 7);
  EXPECT_EQ(chain.Widest(7), 1);
  const Topology automatic = ParseTopology("", 3).value();
  EXPECT_EQ(automatic.Nodes(4), 12);
  EXPECT_EQ(automatic.Widest(4), 3);
  EXPECT_EQ(automatic.Children(0, 0), 3);
  EXPECT_EQ(automatic.Children(3, 2), 1);
  EXPECT_EQ(automatic.FirstChild(3, 2), 2);
}

TEST(TopologyTest, EagleIsThePublishedTree) {
  const Topology eagle = ParseTopology("eagle").value();
  EXPECT_EQ(eagle.depth(), 5);
  EXPECT_EQ(eagle.Nodes(5), 25);
  EXPECT_EQ(eagle.Widest(5), 8);
  // Every level lists as many nodes as the previous level has children.
  for (int level = 1; level < eagle.depth(); ++level) {
    EXPECT_EQ(eagle.children[level].size(), eagle.Nodes(level) - eagle.Nodes(level - 1));
  }
  // The longest published path: [0, 0, 0, 0, 1].
  EXPECT_EQ(eagle.Children(4, eagle.FirstChild(3, 0)), 2);
}

TEST(TopologyTest, RefusesWhatIsNoTreeByName) {
  const auto message = [](absl::string_view text) {
    return std::string(ParseTopology(text).status().message());
  };
  for (const char* bad : {"-", "4-", "-4", "4--2", "0", "4-0", "4-x", "tree", "4 2", "-1", "1.5",
                          "99999999999999999999", "Eagle"}) {
    EXPECT_THAT(message(bad), HasSubstr("draft_tree")) << bad;
  }
  EXPECT_THAT(message("513"), HasSubstr("512"));
  EXPECT_THAT(message("16-16-16"), HasSubstr("512 nodes"));
  EXPECT_THAT(message("512-1"), HasSubstr("512 nodes"));
  std::string deep = "1";
  for (int level = 1; level < kMaxTopologyDepth; ++level) deep += "-1";
  EXPECT_EQ(message(deep), "");
  EXPECT_THAT(message(deep + "-1"), HasSubstr("64 levels"));
  EXPECT_THAT(std::string(ParseTopology("", 0).status().message()), HasSubstr("draft_width"));
}

}  // namespace
}  // namespace coppice::decoding
