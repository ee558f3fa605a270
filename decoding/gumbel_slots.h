// Gumbel slots on the joint space (ALGORITHMS.md 5.6): slot w takes the entry with the largest
// log P + G(TOKEN, slot w); without replacement, one slot takes the W largest. P may be warped in
// any mode, so this is also the plain decoder of JOINT and ROWCUT. Law: beam sampling with
// replacement (3.3) or without (3.4). The output is a function of seed and target alone. Called
// through MakeBeamDecoder and MakeDrafter. Thread-compatible.
#pragma once

#include <memory>

#include "decoding/beam_decoder.h"
#include "decoding/drafter.h"

namespace coppice {

std::unique_ptr<BeamDecoder> MakeGumbelSlotsDecoder(const DecodingParams& params);
// Replays the slots with the draft's rows; width = W_S.
std::unique_ptr<Drafter> MakeGumbelSlotsDrafter(const DecodingParams& params,
                                                const DraftState& state, int width);

}  // namespace coppice
