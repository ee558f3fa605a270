// Beam search and sampling without replacement: if the forest held the row of a current beam, the
// drafter is told which of its children can be beams of the next layer.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "tests/decoding/seeded/drafted_run.h"

namespace coppice::decoding {
namespace {

constexpr sampling::DecodingKind kKinds[] = {
    sampling::DecodingKind::kBeamSearch, sampling::DecodingKind::kBeamSamplingWithoutReplacement};

using Children = std::set<std::pair<int, TokenId>>;

Children ChildrenOf(const DraftState& state) {
  Children children;
  for (const DraftState::KnownChild& child : state.known_children)
    children.emplace(child.root, child.token);
  return children;
}

bool IsKnown(const DraftState& state, int root) {
  return std::count(state.known_roots.begin(), state.known_roots.end(), root) > 0;
}

int RootOf(absl::Span<const PathId> roots, PathId path) {
  return static_cast<int>(std::find(roots.begin(), roots.end(), path) - roots.begin());
}

TEST(KnownChildrenTest, HoldAllBeamsOfTheNextLayerBelowKnownRoots) {
  int told = 0, untold = 0, not_taken = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    DraftedRun run(ShortSetting(seed, kKinds[seed % 2]));
    const BeamDecoder& decoder = run.decoder();
    while (!decoder.finished()) {
      run.Advance(run.Draft(decoder.draft_state()));
      if (decoder.finished()) break;
      const DraftState state = decoder.draft_state();
      const std::vector<PathId> roots(decoder.roots().begin(), decoder.roots().end());
      const Children children = ChildrenOf(state);
      EXPECT_EQ(children.size(), state.known_children.size());  // each is told once
      run.AdvancePlainly();
      size_t taken = 0;
      for (const LayerOutput& output : decoder.last_layer()) {
        if (output.finished) continue;
        const int root = RootOf(roots, decoder.paths().parent(output.path));
        const TokenId token = decoder.paths().token(output.path);
        if (!IsKnown(state, root)) {
          ++untold;
          continue;
        }
        ++told;
        ++taken;
        EXPECT_EQ(children.count({root, token}), 1u) << "seed " << seed;
        for (const DraftState::KnownChild& child : state.known_children) {
          if (child.root != root || child.token != token) continue;
          EXPECT_EQ(child.score, output.log_score);
        }
      }
      not_taken += static_cast<int>(children.size() - taken);
      if (decoder.finished()) break;
      // Without a forest no row of the next layer can be known.
      EXPECT_TRUE(decoder.draft_state().known_roots.empty());
      EXPECT_TRUE(decoder.draft_state().known_children.empty());
    }
  }
  EXPECT_GT(told, 2000);
  EXPECT_GT(untold, 2000);
  EXPECT_GT(not_taken, 200);  // a child of another root had a larger key
}

// Whatever the draft model says, the first layer holds no children of known roots but those that were
// told, and none of a root that cannot have any.
TEST(KnownChildrenTest, AreDraftedAndNoOthersOfTheirRoots) {
  int drafted = 0, hopeless = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    const sampling::DecodingKind kind = kKinds[seed % 2];
    DecodeSetting setting = ShortSetting(seed, kind);
    setting.draft_width = 4 * setting.params.beam_width;
    DraftedRun good(setting);
    setting.quality = test::DraftQuality::kRandom;
    const DraftedRun bad(setting);
    while (!good.decoder().finished()) {
      const DraftState state = good.decoder().draft_state();
      const DraftForest forest = bad.Draft(state);
      const size_t width = setting.params.beam_width;
      const bool full = state.known_children.size() == width;
      Children children;
      for (int i = 0; forest.depth() > 0 && i < forest.layer_begin[1]; ++i) {
        const int root = Index(forest.parent[i].root());
        if (IsKnown(state, root)) {
          children.emplace(root, forest.token[i]);
        } else if (full && kind == sampling::DecodingKind::kBeamSearch) {
          EXPECT_GE(state.root_score[root], state.known_children.back().key);
        }
      }
      // All of them, unless the layer is full of what the draft model holds for better.
      const bool room = forest.depth() > 0 && forest.layer_begin[1] < setting.draft_width;
      if (room) {
        EXPECT_EQ(children, ChildrenOf(state)) << "seed " << seed;
      }
      for (const auto& child : children) EXPECT_EQ(ChildrenOf(state).count(child), 1u);
      drafted += static_cast<int>(children.size());
      for (size_t root = 0; full && root < state.root_score.size(); ++root)
        hopeless += state.root_score[root] < state.known_children.back().key;
      good.Advance(good.Draft(state));
    }
  }
  EXPECT_GT(drafted, 1000);
  EXPECT_GT(hopeless, 50);
}

// A forest of the same size covers more layers if the drafter is told, and decides the same.
TEST(KnownChildrenTest, SaveRounds) {
  for (const sampling::DecodingKind kind : kKinds) {
    int told = 0, untold = 0;
    for (uint64_t seed = 0; seed < 300; ++seed) {
      DecodeSetting setting = ShortSetting(seed, kind);
      setting.quality = test::DraftQuality::kGood;
      setting.draft_width = setting.params.beam_width;
      std::vector<Hypothesis> results[2];
      for (const bool tell : {false, true}) {
        DraftedRun run(setting);
        for (; !run.decoder().finished(); ++(tell ? told : untold)) {
          DraftState state = run.decoder().draft_state();
          if (!tell) {
            state.known_roots.clear();
            state.known_children.clear();
          }
          run.Advance(run.Draft(state));
        }
        results[tell] = run.decoder().Result();
      }
      ASSERT_EQ(results[0].size(), results[1].size());
      for (size_t i = 0; i < results[0].size(); ++i)
        EXPECT_EQ(results[0][i].tokens, results[1][i].tokens) << "seed " << seed;
    }
    EXPECT_LT(told, untold * 0.97) << told << " rounds, untold " << untold;
    RecordProperty("told", told);
    RecordProperty("untold", untold);
  }
}

TEST(KnownChildrenTest, ThatDoNotFitTheStateAreRefused) {
  DecodingParams params;
  params.kind = sampling::DecodingKind::kBeamSearch;
  params.beam_width = 2;
  params.num_hypotheses = 1;
  DraftState good;
  good.root_hash = {1, 2};
  good.root_score = {-1, -2};
  good.root_multiplicity = {1, 1};
  good.known_roots = {1};
  good.known_children = {{1, 5, -2.5, -2.5}, {1, 6, -3, -3}};
  ASSERT_TRUE(MakeDrafter(params, good, 4).ok()) << MakeDrafter(params, good, 4).status();
  const auto refused = [&](auto change) {
    DraftState state = good;
    change(&state);
    return !MakeDrafter(params, state, 4).ok();
  };
  EXPECT_TRUE(refused([](auto* s) { s->known_roots = {2}; }));
  EXPECT_TRUE(refused([](auto* s) { s->known_roots = {-1, 1}; }));
  EXPECT_TRUE(refused([](auto* s) { s->known_roots = {1, 1}; }));
  EXPECT_TRUE(refused([](auto* s) { s->known_roots = {0}; }));  // children of root 1
  EXPECT_TRUE(refused([](auto* s) { s->known_children[1].key = -2; }));
  EXPECT_TRUE(refused(
      [](auto* s) { s->known_children[1].key = std::numeric_limits<double>::quiet_NaN(); }));
  EXPECT_TRUE(refused([](auto* s) { s->known_children.push_back({1, 7, -4, -4}); }));
}

}  // namespace
}  // namespace coppice::decoding
