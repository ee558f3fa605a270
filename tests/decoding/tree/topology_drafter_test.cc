#include "decoding/tree/topology_drafter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "lab/exact/tree_distribution.h"

namespace coppice::decoding {
namespace {

constexpr TokenId kEnd = 1;

// A stop id is drafted like any other token. The distribution of the output would be the same with
// children below it, since nothing reaches them: they would be rows of a pass that are never read.
TEST(TopologyDrafterTest, NothingIsDraftedBelowAnEnd) {
  for (const test::TreeMethod& method : test::TreeMethods()) {
    SCOPED_TRACE(method.name);
    int inner_ends = 0, inner_others = 0;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const test::HashLm lm{/*vocab_size=*/3, /*salt=*/11 + seed, /*power=*/3, /*noise=*/42 + seed};
      test::TreeSetting setting;
      setting.params.draft_tree = "2-2-1";
      setting.params.stop_ids = {kEnd};
      setting.distribution = method.distribution;
      setting.draft = [lm](uint64_t hash) { return lm.DraftLogProbs(hash); };
      DraftState state;
      state.root_hash = {sampling::kRootHash};
      const DraftForest forest =
          test::DraftTreeRound(setting, state, /*depth=*/3, std::make_shared<SeededChoices>(seed));
      ASSERT_TRUE(forest.Validate(3).ok()) << forest.Validate(3);
      std::vector<bool> has_children(forest.size(), false);
      for (const TreePlace parent : forest.parent) {
        if (!parent.is_root()) has_children[Index(parent.node())] = true;
      }
      // Of the first two of three levels; there are fewer where every path ends.
      for (int node = 0; node < forest.layer_begin[std::min(2, forest.depth())]; ++node) {
        const bool ends = forest.token[node] == kEnd;
        EXPECT_EQ(has_children[node], !ends) << "seed " << seed << ", node " << node;
        ++(ends ? inner_ends : inner_others);
      }
    }
    EXPECT_GT(inner_ends, 0);
    EXPECT_GT(inner_others, 0);
  }
}

}  // namespace
}  // namespace coppice::decoding
