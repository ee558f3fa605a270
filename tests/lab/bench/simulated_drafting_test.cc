// The simulated clock of drafting, and the worlds that choose what is drafted.
#include "lab/bench/drafting/simulated_drafting.h"

#include <gtest/gtest.h>

#include <map>

#include "decoding/beam_decoder.h"
#include "decoding/drafter.h"
#include "decoding/method.h"
#include "lab/exact/hash_lm.h"
#include "sampling/rng.h"

namespace coppice::lab {
namespace {

using Kind = DraftingPolicy::Kind;

decoding::DecodingParams Params(uint64_t seed, int beams = 4) {
  decoding::DecodingParams params;
  params.beam_width = beams;
  params.kind =
      beams == 1 ? sampling::DecodingKind::kMultinomial : sampling::DecodingKind::kBeamSampling;
  params.max_tokens = 40;
  params.stop_ids = {0};
  params.seed = seed;
  params.method = decoding::FindMethod("gumbel_coupling");
  return params;
}

// A draft that differs from the target, or is equal to it.
class HashRows : public PairRows {
 public:
  HashRows(const decoding::DecodingParams& params, bool equal)
      : params_(params), lm_{.vocab_size = 24, .power = 6, .noise = 2}, equal_(equal) {}
  void Name(uint64_t, uint64_t, TokenId) override {}
  absl::Span<const float> Target(uint64_t path) override {
    return Floats(path, lm_.TargetLogProbs(path));
  }
  const sampling::Distribution& Draft(uint64_t path) override {
    const auto row = Floats(path, equal_ ? lm_.TargetLogProbs(path) : lm_.DraftLogProbs(path));
    return drafts_[path] = decoding::DraftRow(row, params_, sampling::RowPath(0));
  }

 private:
  absl::Span<const float> Floats(uint64_t path, const std::vector<double>& row) {
    return rows_[path] = {row.begin(), row.end()};
  }
  const decoding::DecodingParams params_;
  const test::HashLm lm_;
  const bool equal_;
  std::map<uint64_t, std::vector<float>> rows_;
  std::map<uint64_t, sampling::Distribution> drafts_;
};

WorldsOptions OneWorld() {
  WorldsOptions options;
  options.worlds = 1;
  options.sigma = 0;
  options.spare_worlds = 0;
  return options;
}

void RunPass(int count, PairRows* rows, PossibleWorlds* worlds) {
  const std::vector<PossibleWorlds::Want> wants = worlds->wants();
  for (int i = 0; i < std::min<int>(count, wants.size()); ++i)
    worlds->Add(wants[i], rows->Draft(wants[i].path));
  worlds->Replay();
}

// Without errors, and with a draft that is equal to the target, a world is what the target does.
TEST(PossibleWorlds, ReplayWhatTheDecoderDecides) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const decoding::DecodingParams params = Params(seed, seed % 4 == 0 ? 1 : 4);
    HashRows rows(params, /*equal=*/true);
    PossibleWorlds worlds(params, OneWorld());
    auto decoder = *decoding::MakeBeamDecoder(params);
    const test::HashLm lm{.vocab_size = 24, .power = 6, .noise = 2};
    while (!decoder->finished()) {
      const decoding::DraftState state = decoder->draft_state();
      worlds.Begin(state);
      worlds.Replay();
      for (int pass = 0; pass < 3; ++pass) RunPass(100, &rows, &worlds);
      const decoding::DraftForest forest = worlds.Forest(100, decoder->max_useful_depth());
      ASSERT_TRUE(forest.Validate(24).ok());
      const int before = decoder->layers_committed();
      test::HashLmRows target(lm, state.root_hash, forest, /*in_f32=*/true);
      decoder->Advance(forest, &target);
      if (decoder->finished()) break;
      ASSERT_EQ(decoder->layers_committed() - before, worlds.layers()) << seed;
    }
  }
}

TEST(PossibleWorlds, KeepOnlyRowsBelowARoot) {
  const decoding::DecodingParams params = Params(3);
  HashRows rows(params, /*equal=*/false);
  PossibleWorlds worlds(params, {});
  decoding::DraftState state;
  state.root_hash = {sampling::kRootHash};
  state.root_score = {0};
  state.root_multiplicity = {4};
  state.slot_root = {0, 0, 0, 0};
  worlds.Begin(state);
  worlds.Replay();
  RunPass(1, &rows, &worlds);
  ASSERT_EQ(worlds.rows(), 1);
  const PossibleWorlds::Want next = worlds.wants()[0];
  EXPECT_EQ(next.parent, sampling::kRootHash);
  RunPass(1, &rows, &worlds);
  ASSERT_EQ(worlds.rows(), 2);
  state.root_hash = {next.path};
  worlds.Begin(state);
  EXPECT_EQ(worlds.rows(), 1);
  state.root_hash = {12345};
  worlds.Begin(state);
  EXPECT_EQ(worlds.rows(), 0);
}

TEST(SimulatedDrafting, ARoundTakesItsPassesAndItsMessages) {
  const decoding::DecodingParams params = Params(2);
  HashRows rows(params, /*equal=*/false);
  DraftingPolicy policy;
  policy.depth = 1;
  const SimulatedRun run =
      SimulateDrafting(params, {}, policy, {.draft_pass = .25, .delay = .125}, &rows);
  ASSERT_GT(run.rounds, 10);
  EXPECT_EQ(run.time, run.rounds * 1.5);
  // A pass of two rows: a level of up to four roots takes one or two.
  const SimulatedRun narrow = SimulateDrafting(
      params, {}, policy, {.draft_pass = .25, .delay = .125, .pass_rows = 2}, &rows);
  EXPECT_EQ(narrow.rounds, run.rounds);
  EXPECT_GT(narrow.time, run.time);
  EXPECT_LE(narrow.time, run.rounds * 1.75);
}

// With one world that is right about everything, the next forest is ready when its request comes.
TEST(SimulatedDrafting, AnExactDraftAheadHidesTheDraft) {
  decoding::DecodingParams params = Params(5, /*beams=*/1);
  params.stop_ids.clear();
  params.max_tokens = 200;
  HashRows rows(params, /*equal=*/true);
  DraftingPolicy worlds, ahead, stream;
  worlds.kind = Kind::kWorlds;
  ahead.kind = Kind::kAhead;
  stream.kind = Kind::kStream;
  const SimulatedMachine machine{.draft_pass = .125, .delay = .5};
  const auto run = [&](const DraftingPolicy& policy) {
    return SimulateDrafting(params, OneWorld(), policy, machine, &rows);
  };
  const SimulatedRun of_worlds = run(worlds), of_ahead = run(ahead), of_stream = run(stream);
  EXPECT_EQ(of_worlds.layers, of_ahead.layers);
  EXPECT_EQ(of_worlds.layers, of_stream.layers);
  const auto rate = [](const SimulatedRun& r) { return r.layers / r.time; };
  EXPECT_GT(rate(of_ahead), 1.2 * rate(of_worlds));
  // Passes and messages are hidden but for the first: eight layers in each pass of the target.
  EXPECT_GT(rate(of_stream), 1.2 * rate(of_ahead));
  EXPECT_LE(rate(of_stream), 1 / machine.draft_pass);
}

TEST(SimulatedDrafting, NoPolicyChangesTheOutput) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const decoding::DecodingParams params = Params(seed);
    HashRows rows(params, /*equal=*/false);
    std::vector<SimulatedRun> runs;
    for (const Kind kind :
         {Kind::kLevels, Kind::kDeeper, Kind::kWorlds, Kind::kAhead, Kind::kStream}) {
      DraftingPolicy policy;
      policy.kind = kind;
      policy.waits = 1;
      runs.push_back(SimulateDrafting(params, {}, policy, {}, &rows));
      EXPECT_EQ(runs.back().output, runs[0].output);
      EXPECT_EQ(runs.back().layers, runs[0].layers);
      EXPECT_LT(runs.back().rounds, runs[0].layers) << "no draft was accepted";
    }
  }
}

}  // namespace
}  // namespace coppice::lab
