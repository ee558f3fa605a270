// DSBD that keeps only one beam between rounds, the output of lowest perplexity. So it has only one
// branch of KV (docs/algorithms.md 5.4, rule E). Lossy: the distribution depends on where rounds
// end, and so on the draft. Row "dsbd_single_kv" of decoding/method.h. Drafts as in DSBD.
// Parameters have been checked.
#pragma once

#include <memory>

#include "decoding/beam_decoder.h"

namespace coppice::decoding {

std::unique_ptr<BeamDecoder> MakeDsbdSingleKvDecoder(const DecodingParams& params);

}  // namespace coppice::decoding
