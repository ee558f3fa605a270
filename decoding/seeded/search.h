// Deterministic beam search, plain and certified speculative (docs/algorithms.md 3.5, 5.9), also in
// groups (8.2), and,
// with noise on, Gumbel top-k beam sampling without replacement (3.4, 5.8). The output is a
// function of seed and target alone. Called through MakeBeamDecoder and MakeDrafter; the kind of
// the parameters says which. Thread-compatible.
#pragma once

#include <memory>

#include "decoding/beam_decoder.h"
#include "decoding/drafter.h"

namespace coppice::decoding {

// certified = false ends a round when a current beam is not a node ("plain" of 5.9). The golden
// files cover both.
std::unique_ptr<BeamDecoder> MakeSearchDecoder(const DecodingParams& params, bool certified);
// Level l+1 = the W_S best children of level l by draft score or, with noise, by draft key (the
// standard drafts of 5.9 and 5.8, covered by golden files). look_ahead, with noise: children are
// also ranked by the bound on their own children, which covers more layers with the same nodes. A
// multinomial request at temperature 0 (greedy) is drafted as a search of width 1.
std::unique_ptr<Drafter> MakeSearchDrafter(const DecodingParams& params, const DraftState& state,
                                           int width, bool look_ahead);
// The same for groups of beams (8.2), each of which ranks its own children.
std::unique_ptr<Drafter> MakeGroupSearchDrafter(const DecodingParams& params,
                                                const DraftState& state, int width);

}  // namespace coppice::decoding
