// Multi-token joint speculative decoding (docs/algorithms.md 6.2 with erratum E18): the best path
// of a draft beam search is kept as far as its joint likelihood under the target stays above tau
// times that under the draft. Lossy: what passes is no sample of the target. Called through
// MakeBeamDecoder and MakeDrafter. Thread-compatible.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "decoding/beam_decoder.h"
#include "decoding/choice_source.h"
#include "decoding/drafter.h"

namespace coppice {

// Every node of the drafted path has the proposal that it was taken from. A forest that fails is
// ignored: the round is plain.
absl::Status CheckMjsdForest(const DraftForest& forest);

// tau = params.mjsd_threshold. Both likelihoods are under the request's warp; at temperature 0
// under the plain rows, and the token behind the path is the argmax.
std::unique_ptr<BeamDecoder> MakeMjsdDecoder(const DecodingParams& params,
                                             std::shared_ptr<ChoiceSource> choices);
std::unique_ptr<BeamDecoder> MakeMjsdDecoder(const DecodingParams& params);

// Beam search of width params.draft_beams on q. A path that ends is ranked against the others by
// ls / len^length_penalty (docs/algorithms.md 8). Ships the best path with the rows that it was
// taken from.
std::unique_ptr<Drafter> MakeMjsdDrafter(const DecodingParams& params, const DraftState& state,
                                         int width);

}  // namespace coppice
