// Beam sampling by recursive rejection (docs/algorithms.md 5.7, variant): parents are picked by the
// shared noise of Gumbel coupling. The tokens of a parent's slots follow 5.5 on its single row,
// with drafts drawn without replacement from q(.|parent). Distribution: beam sampling with
// replacement (3.3), at width 1 multinomial sampling (3.1), for any draft. The output depends on
// the seed and on where rounds begin. Row "beam_recursive_rejection" of decoding/method.h.
// Parameters have been checked. Thread-compatible.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "decoding/beam_decoder.h"
#include "decoding/drafter.h"
#include "decoding/joint/choice_source.h"

namespace coppice::decoding {

// Checks what the verifier relies on beyond DraftForest::Validate.
absl::Status CheckBeamRecursiveRejectionForest(const DraftForest& forest);

std::unique_ptr<BeamDecoder> MakeBeamRecursiveRejectionDecoder(const DecodingParams& params);
// Drafts W_S nodes per layer. Parents that are closer to being picked by a slot get more of them.
std::unique_ptr<Drafter> MakeBeamRecursiveRejectionDrafter(const DecodingParams& params,
                                                           const DraftState& state, int width);

// With choices that are not seeded, for exact distributions. Picks stay seeded, because the
// distributions hold given the noise of the picks.
std::unique_ptr<BeamDecoder> MakeBeamRecursiveRejectionDecoder(
    const DecodingParams& params, std::shared_ptr<ChoiceSource> choices);
std::unique_ptr<Drafter> MakeBeamRecursiveRejectionDrafter(const DecodingParams& params,
                                                           const DraftState& state, int width,
                                                           std::shared_ptr<ChoiceSource> choices);

}  // namespace coppice::decoding
