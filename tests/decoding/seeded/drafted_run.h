// For tests of what a drafter is told of rows that the target has computed already.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "decoding/beam_decoder.h"
#include "decoding/drafter.h"
#include "tests/decoding/random_setting.h"
#include "tests/testing/decode_loop.h"

namespace coppice::decoding {

// A decoder, with a drafter that the test calls itself.
class DraftedRun {
 public:
  explicit DraftedRun(const DecodeSetting& setting)
      : setting_(setting), decoder_(MakeBeamDecoder(setting.params).value()) {}

  const BeamDecoder& decoder() const { return *decoder_; }
  // Drafts from a state, which the caller may have changed.
  DraftForest Draft(const DraftState& state) const {
    auto drafter = MakeDrafter(setting_.params, state, setting_.draft_width);
    EXPECT_TRUE(drafter.ok()) << drafter.status();
    return test::HashLmForest(setting_.lm, state, drafter->get(),
                              std::min(setting_.depth, decoder_->max_useful_depth()),
                              setting_.quality);
  }
  int Advance(const DraftForest& forest) {
    const DraftState state = decoder_->draft_state();
    test::HashLmRows rows(setting_.lm, state.root_hash, forest);
    return decoder_->Advance(forest, &rows).stats.layers;
  }
  // Decides exactly one layer.
  void AdvancePlainly() { Advance(DraftForest::Empty(static_cast<int>(decoder_->roots().size()))); }

 private:
  const DecodeSetting setting_;
  const std::unique_ptr<BeamDecoder> decoder_;
};

// Of at most 40 tokens and 3 levels of drafts.
inline DecodeSetting ShortSetting(uint64_t seed, sampling::DecodingKind kind) {
  DecodeSetting setting = RandomSetting(seed, kind);
  setting.params.max_tokens = 40;
  setting.depth = 1 + static_cast<int>(seed % 3);
  return setting;
}

}  // namespace coppice::decoding
