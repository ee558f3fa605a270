// Multi-token joint greedy decoding (docs/algorithms.md 6.1): commits windows of g tokens, each the
// most likely continuation found by a beam search of width M on the target. g = 1 is greedy, M >=
// V^(g-1) the exact maximum. Deterministic; no sampling distribution. Needs no drafts, but decides
// as many layers in a round as the rows of a forest allow. Called through MakeBeamDecoder.
// Thread-compatible.
#pragma once

#include <memory>

#include "decoding/beam_decoder.h"

namespace coppice::decoding {

// g = params.joint_tokens, M = params.draft_beams. Likelihoods are under the request's sampling
// parameters, at temperature 0 under the plain rows. A path that ends keeps competing with its
// likelihood until the window closes. Ties go to the lexicographically first path. roots() are the
// M beams of the open window; last_layer() is its best path so far.
std::unique_ptr<BeamDecoder> MakeMjgdDecoder(const DecodingParams& params);

}  // namespace coppice::decoding
