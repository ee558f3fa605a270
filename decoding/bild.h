// BiLD (docs/algorithms.md 6.3): the draft model writes on while it is sure of itself; the target
// reads what was written and rolls back to the first token that it finds too unlikely. Lossy: what
// stays is the draft's. Called through MakeBeamDecoder and MakeDrafter. Thread-compatible.
#pragma once

#include <memory>

#include "decoding/beam_decoder.h"
#include "decoding/choice_source.h"
#include "decoding/drafter.h"

namespace coppice {

// Keeps the drafts before the first with -log p > params.rollback_threshold (tau2, nats) and adds a
// token from p there. At temperature 0 p is the plain row and the token its argmax.
std::unique_ptr<BeamDecoder> MakeBildDecoder(const DecodingParams& params,
                                             std::shared_ptr<ChoiceSource> choices);
std::unique_ptr<BeamDecoder> MakeBildDecoder(const DecodingParams& params);

// One token after the other from q, at temperature 0 its argmax, while max q >=
// params.fallback_threshold (tau1). Ships the path alone.
std::unique_ptr<Drafter> MakeBildDrafter(const DecodingParams& params, const DraftState& state,
                                         std::shared_ptr<ChoiceSource> choices);
std::unique_ptr<Drafter> MakeBildDrafter(const DecodingParams& params, const DraftState& state,
                                         int width);

}  // namespace coppice
