// Gumbel coupling: if the forest held the row of a picked parent, the next outputs of its slots are
// known before that layer is decided. The drafter is told.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/decoding/seeded/drafted_run.h"

namespace coppice::decoding {
namespace {

bool IsKnown(const DraftState& state, size_t slot) {
  return !state.slot_token.empty() && state.slot_token[slot] >= 0;
}

TEST(KnownSlotsTest, AreWhatTheSlotsOutputNext) {
  int known = 0, unknown = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    DraftedRun run(ShortSetting(seed, sampling::DecodingKind::kBeamSampling));
    while (!run.decoder().finished()) {
      run.Advance(run.Draft(run.decoder().draft_state()));
      if (run.decoder().finished()) break;
      const DraftState state = run.decoder().draft_state();
      run.AdvancePlainly();
      ASSERT_EQ(run.decoder().last_layer().size(), state.slot_root.size());
      for (size_t w = 0; w < state.slot_root.size(); ++w) {
        if (!IsKnown(state, w)) {
          ++unknown;
          continue;
        }
        ++known;
        const LayerOutput& output = run.decoder().last_layer()[w];
        EXPECT_EQ(state.slot_token[w], run.decoder().paths().token(output.path));
        EXPECT_EQ(state.root_score[state.slot_root[w]] + state.slot_log_prob[w], output.log_score);
      }
      // Without a forest no row of the next layer can be known.
      EXPECT_TRUE(run.decoder().draft_state().slot_token.empty());
    }
  }
  EXPECT_GT(known, 500);
  EXPECT_GT(unknown, 500);
}

TEST(KnownSlotsTest, AreDraftedWhateverTheDraftModelSays) {
  int drafted = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    DecodeSetting setting = ShortSetting(seed, sampling::DecodingKind::kBeamSampling);
    setting.draft_width = 4 * setting.params.beam_width;
    DraftedRun good(setting);
    setting.quality = test::DraftQuality::kAdversarial;  // one token per node: the least likely
    const DraftedRun bad(setting);
    while (!good.decoder().finished()) {
      const DraftState state = good.decoder().draft_state();
      const DraftForest forest = bad.Draft(state);
      const std::vector<TokenId>& stops = setting.params.stop_ids;
      for (size_t w = 0; w < state.slot_token.size() && forest.depth() > 0; ++w) {
        const TokenId token = state.slot_token[w];
        if (token < 0 || std::find(stops.begin(), stops.end(), token) != stops.end()) continue;
        int copies = 0;
        for (int i = 0; i < forest.layer_begin[1]; ++i) {
          copies += forest.parent[i] == RootId{state.slot_root[w]} && forest.token[i] == token;
        }
        EXPECT_EQ(copies, 1) << "slot " << w;
        ++drafted;
      }
      good.Advance(good.Draft(state));
    }
  }
  EXPECT_GT(drafted, 300);
}

// A forest of the same size covers more layers if the drafter is told.
TEST(KnownSlotsTest, SaveRounds) {
  int told = 0, untold = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    DecodeSetting setting = ShortSetting(seed, sampling::DecodingKind::kBeamSampling);
    setting.quality = test::DraftQuality::kGood;
    setting.draft_width = setting.params.beam_width;
    for (const bool tell : {false, true}) {
      DraftedRun run(setting);
      for (; !run.decoder().finished(); ++(tell ? told : untold)) {
        DraftState state = run.decoder().draft_state();
        if (!tell) {
          state.slot_token.clear();
          state.slot_log_prob.clear();
        }
        run.Advance(run.Draft(state));
      }
    }
  }
  EXPECT_LT(told, untold * 0.99) << told << " rounds, untold " << untold;
  RecordProperty("told", told);
  RecordProperty("untold", untold);
}

TEST(KnownSlotsTest, OfAnotherNumberAreRefused) {
  const DecodeSetting setting = ShortSetting(1, sampling::DecodingKind::kBeamSampling);
  DraftState state;
  state.root_hash = {1};
  state.root_score = {0};
  state.root_multiplicity = {1};
  state.slot_root = {0};
  ASSERT_TRUE(MakeDrafter(setting.params, state, 1).ok());
  state.slot_token = {1};
  EXPECT_FALSE(MakeDrafter(setting.params, state, 1).ok());
  state.slot_log_prob = {-1};
  EXPECT_TRUE(MakeDrafter(setting.params, state, 1).ok());
  state.slot_token = {1, 2};
  state.slot_log_prob = {-1, -1};
  EXPECT_FALSE(MakeDrafter(setting.params, state, 1).ok());
}

}  // namespace
}  // namespace coppice::decoding
