// Beam sampling by Gumbel coupling (docs/algorithms.md 5.7): parent first, then token, both by
// shared Gumbel noise. Distribution: beam sampling with replacement, multiset semantics (3.3);
// width 1 is multinomial sampling (3.1), temperature 0 greedy (3.2). The output is a function of
// seed and target alone. Called through MakeBeamDecoder and MakeDrafter. Thread-compatible.
#pragma once

#include <memory>

#include "decoding/beam_decoder.h"
#include "decoding/drafter.h"

namespace coppice::decoding {

std::unique_ptr<BeamDecoder> MakeGumbelCouplingDecoder(const DecodingParams& params);
// Drafts by the rule of 5.7 with hc = 1 and with a look-ahead of one pick (docs/decisions.md).
// width = W_S.
std::unique_ptr<Drafter> MakeGumbelCouplingDrafter(const DecodingParams& params,
                                                   const DraftState& state, int width);

}  // namespace coppice::decoding
