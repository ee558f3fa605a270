// Multi-token joint speculative decoding (docs/algorithms.md 6.2 with erratum E18): keeps the
// longest prefix of the best path of a draft beam search whose joint likelihood under the target is
// above tau times that under the draft. Lossy: the kept tokens are not a sample of the target.
// Called through MakeBeamDecoder and MakeDrafter. Thread-compatible.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "decoding/beam_decoder.h"
#include "decoding/drafter.h"
#include "decoding/joint/choice_source.h"

namespace coppice::decoding {

// Checks that every node of the drafted path has its proposal. A forest that fails is ignored and
// the round is plain.
absl::Status CheckMjsdForest(const DraftForest& forest);

// tau = params.mjsd_threshold. Both likelihoods are under the request's sampling parameters; at
// temperature 0 under the plain rows, and the token after the path is the argmax.
std::unique_ptr<BeamDecoder> MakeMjsdDecoder(const DecodingParams& params,
                                             std::shared_ptr<ChoiceSource> choices);
std::unique_ptr<BeamDecoder> MakeMjsdDecoder(const DecodingParams& params);

// Beam search of width params.draft_beams on q. A path that ends is ranked against the others by
// ls / len^length_penalty (docs/algorithms.md 8). Ships the best path with the rows it was chosen
// from.
std::unique_ptr<Drafter> MakeMjsdDrafter(const DecodingParams& params, const DraftState& state,
                                         int width);

}  // namespace coppice::decoding
