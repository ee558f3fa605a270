// Runs a decoder on HashLM rounds, with drafts of a chosen quality or without, and checks after
// every round what a worker relies on. Used by tests/decoding.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "decoding/beam_decoder.h"
#include "decoding/drafter.h"
#include "tests/testing/hash_lm.h"

namespace coppice {

enum class DraftQuality { kNone, kGood, kRandom, kConstant, kIdentical };

struct DecodeRun {
  std::vector<Hypothesis> result;
  std::vector<int> layers_per_round;
  std::vector<LayerOutput> last_layer;
  int layers = 0;
};

inline Distribution HashLmDraftRow(const HashLm& lm, uint64_t hash, DraftQuality quality) {
  HashLm other = lm;
  switch (quality) {
    case DraftQuality::kNone:
    case DraftQuality::kIdentical:
      return DenseDistribution(lm.TargetLogProbs(hash));
    case DraftQuality::kGood:
      return DenseDistribution(lm.DraftLogProbs(hash));
    case DraftQuality::kRandom:
      other.salt += 77;
      return DenseDistribution(other.TargetLogProbs(hash));
    case DraftQuality::kConstant:
      return DenseDistribution(std::vector<double>(lm.vocab_size, -Log(lm.vocab_size)));
  }
  return {};
}

inline DraftForest HashLmForest(const HashLm& lm, const DraftState& state, Drafter* drafter,
                                int depth, DraftQuality quality) {
  for (int level = 0; level < depth && !drafter->frontier().empty(); ++level) {
    const std::vector<uint64_t> hashes = RowHashes(state.root_hash, drafter->forest());
    std::vector<Distribution> rows;
    for (int32_t node : drafter->frontier()) {
      rows.push_back(HashLmDraftRow(
          lm, hashes[node < 0 ? -1 - node : state.root_hash.size() + node], quality));
    }
    drafter->Grow(rows);
  }
  return drafter->Shipped();
}

// node_path names exactly the nodes on the way to new roots, each with its own path.
inline void CheckNodePaths(const BeamDecoder& decoder, const DraftState& before,
                           const DraftForest& forest, const Verdict& verdict) {
  ASSERT_EQ(verdict.node_path.size(), forest.token.size());
  const std::vector<uint64_t> hashes = RowHashes(before.root_hash, forest);
  std::map<uint64_t, PathId> kept;
  for (PathId root : decoder.roots()) {
    for (PathId path = root; path != kRootPath; path = decoder.paths().parent(path)) {
      kept[decoder.paths().hash(path)] = path;
    }
  }
  for (int i = 0; i < forest.size(); ++i) {
    const auto found = kept.find(hashes[before.root_hash.size() + i]);
    ASSERT_EQ(verdict.node_path[i], found == kept.end() ? -1 : found->second) << "node " << i;
  }
}

inline DecodeRun RunDecode(std::unique_ptr<BeamDecoder> decoder, const DecodingParams& params,
                           const HashLm& lm, DraftQuality quality, int width, int depth) {
  DecodeRun run;
  std::vector<TokenId> stable;
  while (!decoder->finished()) {
    const DraftState state = decoder->draft_state();
    EXPECT_FALSE(decoder->roots().empty());
    EXPECT_EQ(state.root_hash.size(), decoder->roots().size());
    DraftForest forest = DraftForest::Empty(static_cast<int>(decoder->roots().size()));
    if (quality != DraftQuality::kNone) {
      auto drafter = MakeDrafter(params, state, width);
      EXPECT_TRUE(drafter.ok()) << drafter.status();
      if (!drafter.ok()) return run;
      forest = HashLmForest(lm, state, drafter->get(), std::min(depth, decoder->max_useful_depth()),
                            quality);
      EXPECT_TRUE(forest.Validate(lm.vocab_size).ok()) << forest.Validate(lm.vocab_size);
    }
    HashLmRows rows(lm, state.root_hash, forest);
    const Verdict verdict = decoder->Advance(forest, &rows);
    CheckNodePaths(*decoder, state, forest, verdict);
    EXPECT_GE(verdict.stats.layers, 1);
    EXPECT_LE(rows.rows_read(), static_cast<int>(state.root_hash.size()) + forest.size());
    run.layers_per_round.push_back(verdict.stats.layers);
    // The stable prefix never retracts.
    const std::vector<TokenId> prefix = decoder->StablePrefix();
    EXPECT_TRUE(prefix.size() >= stable.size() &&
                std::equal(stable.begin(), stable.end(), prefix.begin()));
    stable = prefix;
  }
  EXPECT_TRUE(decoder->roots().empty());
  run.result = decoder->Result();
  run.layers = decoder->layers_committed();
  run.last_layer.assign(decoder->last_layer().begin(), decoder->last_layer().end());
  if (!run.result.empty()) {
    EXPECT_EQ(stable, run.result[0].tokens);
  }
  return run;
}

}  // namespace coppice
