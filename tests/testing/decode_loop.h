// Runs a decoder on HashLM rounds, with drafts of a chosen quality or without drafts. After every
// round it checks what a worker relies on. RunDecode runs to the end. DecodeLoop runs one round at
// a time. Used by tests/decoding.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "decoding/beam_decoder.h"
#include "decoding/drafter.h"
#include "lab/exact/hash_lm.h"

namespace coppice::test {

// kAdversarial: always the target's least likely token.
enum class DraftQuality { kNone, kGood, kRandom, kConstant, kAdversarial, kIdentical };

struct DecodeRun {
  std::vector<decoding::Hypothesis> result;
  std::vector<int> layers_per_round;
  std::vector<decoding::LayerOutput> last_layer;
  int layers = 0;
};

inline sampling::Distribution HashLmDraftRow(const HashLm& lm, uint64_t hash,
                                             DraftQuality quality) {
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
      return DenseDistribution(std::vector<double>(lm.vocab_size, -sampling::Log(lm.vocab_size)));
    case DraftQuality::kAdversarial: {
      const std::vector<double> row = lm.TargetLogProbs(hash);
      return {{static_cast<TokenId>(std::min_element(row.begin(), row.end()) - row.begin())}, {0}};
    }
  }
  return {};
}

inline decoding::DraftForest HashLmForest(const HashLm& lm, const decoding::DraftState& state,
                                          decoding::Drafter* drafter, int depth,
                                          DraftQuality quality) {
  for (int level = 0; level < depth && !drafter->frontier().empty(); ++level) {
    const std::vector<uint64_t> hashes = RowHashes(state.root_hash, drafter->forest());
    std::vector<sampling::Distribution> rows;
    for (const TreePlace place : drafter->frontier()) {
      rows.push_back(HashLmDraftRow(lm, hashes[drafter->forest().RowOf(place)], quality));
    }
    drafter->Grow(rows);
  }
  return drafter->Sent();
}

// Checks that node_path has exactly the nodes on paths to new roots, each with its own path.
inline void CheckNodePaths(const decoding::BeamDecoder& decoder, const decoding::DraftState& before,
                           const decoding::DraftForest& forest, const decoding::Verdict& verdict) {
  ASSERT_EQ(verdict.node_path.size(), forest.token.size());
  ASSERT_EQ(verdict.accepted.size(), forest.token.size());
  const std::vector<uint64_t> hashes = RowHashes(before.root_hash, forest);
  std::map<uint64_t, decoding::PathId> kept;
  for (decoding::PathId root : decoder.roots()) {
    for (decoding::PathId path = root; path != decoding::kRootPath;
         path = decoder.paths().parent(path)) {
      kept[decoder.paths().hash(path)] = path;
    }
  }
  for (int i = 0; i < forest.size(); ++i) {
    const auto found = kept.find(hashes[before.root_hash.size() + i]);
    ASSERT_EQ(verdict.node_path[i], found == kept.end() ? decoding::kNoPath : found->second)
        << "node " << i;
    ASSERT_TRUE(verdict.accepted[i] || verdict.node_path[i] == decoding::kNoPath) << "node " << i;
  }
  ASSERT_EQ(std::count(verdict.accepted.begin(), verdict.accepted.end(), true),
            verdict.stats.accepted_nodes);
}

class DecodeLoop {
 public:
  DecodeLoop(std::unique_ptr<decoding::BeamDecoder> decoder, const decoding::DecodingParams& params,
             const HashLm& lm, DraftQuality quality, int width, int depth)
      : decoder_(std::move(decoder)),
        params_(params),
        lm_(lm),
        quality_(quality),
        width_(width),
        depth_(depth) {}

  bool finished() const { return failed_ || decoder_->finished(); }

  // One round.
  void Step() {
    const decoding::DraftState state = decoder_->draft_state();
    EXPECT_FALSE(decoder_->roots().empty());
    EXPECT_EQ(state.root_hash.size(), decoder_->roots().size());
    decoding::DraftForest forest =
        decoding::DraftForest::Empty(static_cast<int>(decoder_->roots().size()));
    if (quality_ != DraftQuality::kNone) {
      auto drafter = decoding::MakeDrafter(params_, state, width_);
      EXPECT_TRUE(drafter.ok()) << drafter.status();
      failed_ = !drafter.ok();
      if (failed_) return;
      forest = HashLmForest(lm_, state, drafter->get(),
                            std::min(depth_, decoder_->max_useful_depth()), quality_);
      EXPECT_TRUE(forest.Validate(lm_.vocab_size).ok()) << forest.Validate(lm_.vocab_size);
    }
    HashLmRows rows(lm_, state.root_hash, forest);
    const decoding::Verdict verdict = decoder_->Advance(forest, &rows);
    CheckNodePaths(*decoder_, state, forest, verdict);
    EXPECT_GE(verdict.stats.layers, 1);
    // Each group of beams reads a row at most once.
    EXPECT_LE(rows.rows_read(),
              params_.num_beam_groups * (static_cast<int>(state.root_hash.size()) + forest.size()));
    run_.layers_per_round.push_back(verdict.stats.layers);
    // The stable prefix never shrinks or changes.
    const std::vector<TokenId> prefix = decoder_->StablePrefix();
    EXPECT_TRUE(prefix.size() >= stable_.size() &&
                std::equal(stable_.begin(), stable_.end(), prefix.begin()));
    stable_ = prefix;
  }

  // Call it after finished() is true.
  DecodeRun Finish() {
    if (failed_) return run_;
    EXPECT_TRUE(decoder_->roots().empty());
    run_.result = decoder_->Result();
    run_.layers = decoder_->layers_committed();
    run_.last_layer.assign(decoder_->last_layer().begin(), decoder_->last_layer().end());
    if (!run_.result.empty()) {
      EXPECT_EQ(stable_, run_.result[0].tokens);
    }
    return run_;
  }

 private:
  const std::unique_ptr<decoding::BeamDecoder> decoder_;
  const decoding::DecodingParams params_;
  const HashLm lm_;
  const DraftQuality quality_;
  const int width_;
  const int depth_;
  DecodeRun run_;
  std::vector<TokenId> stable_;
  bool failed_ = false;
};

inline DecodeRun RunDecode(std::unique_ptr<decoding::BeamDecoder> decoder,
                           const decoding::DecodingParams& params, const HashLm& lm,
                           DraftQuality quality, int width, int depth) {
  DecodeLoop loop(std::move(decoder), params, lm, quality, width, depth);
  while (!loop.finished()) loop.Step();
  return loop.Finish();
}

}  // namespace coppice::test
