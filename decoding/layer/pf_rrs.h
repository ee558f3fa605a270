// PF-RRS beam sampling (docs/algorithms.md 5.7, variant): parents are picked by the shared noise of
// PF-Gumbel. The tokens of a parent's slots follow 5.5 on its single row, with drafts drawn without
// replacement from q(.|parent). Law: beam sampling with replacement (3.3), at width 1 multinomial
// sampling (3.1), for any draft. The output depends on the seed and on where rounds begin. Row
// "pf_rrs" of decoding/method.h. Parameters have been checked. Thread-compatible.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "decoding/beam_decoder.h"
#include "decoding/drafter.h"
#include "decoding/law/choice_source.h"

namespace coppice::decoding {

// Checks what the verifier relies on beyond DraftForest::Validate.
absl::Status CheckPfRrsForest(const DraftForest& forest);

std::unique_ptr<BeamDecoder> MakePfRrsDecoder(const DecodingParams& params);
// Drafts W_S nodes per layer. Parents that are closer to being picked by a slot get more of them.
std::unique_ptr<Drafter> MakePfRrsDrafter(const DecodingParams& params, const DraftState& state,
                                          int width);

// With choices that are not seeded, for exact laws. Picks stay seeded, because the laws hold given
// the noise of the picks.
std::unique_ptr<BeamDecoder> MakePfRrsDecoder(const DecodingParams& params,
                                              std::shared_ptr<ChoiceSource> choices);
std::unique_ptr<Drafter> MakePfRrsDrafter(const DecodingParams& params, const DraftState& state,
                                          int width, std::shared_ptr<ChoiceSource> choices);

}  // namespace coppice::decoding
