// BiLD (docs/algorithms.md 6.3): the draft model generates while it is confident. The target scores
// these tokens and rolls back to the first one it finds too unlikely. Lossy: the tokens that stay
// are the draft's. Called through MakeBeamDecoder and MakeDrafter. Thread-compatible.
#pragma once

#include <memory>

#include "decoding/beam_decoder.h"
#include "decoding/drafter.h"
#include "decoding/joint/choice_source.h"

namespace coppice::decoding {

// Keeps the drafts before the first with -log p > params.rollback_threshold (tau2, nats) and adds a
// token from p there. At temperature 0 p is the plain row and the token its argmax.
std::unique_ptr<BeamDecoder> MakeBildDecoder(const DecodingParams& params,
                                             std::shared_ptr<ChoiceSource> choices);
std::unique_ptr<BeamDecoder> MakeBildDecoder(const DecodingParams& params);

// Draws tokens from q one by one (at temperature 0 the argmax) while max q >=
// params.fallback_threshold (tau1). Ships only the path.
std::unique_ptr<Drafter> MakeBildDrafter(const DecodingParams& params, const DraftState& state,
                                         std::shared_ptr<ChoiceSource> choices);
std::unique_ptr<Drafter> MakeBildDrafter(const DecodingParams& params, const DraftState& state,
                                         int width);

}  // namespace coppice::decoding
