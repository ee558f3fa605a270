// Speculative beam sampling with distinct drafts, each of which can serve several outputs:
// docs/algorithms.md 5.5, rule E. Distribution: beam sampling with replacement (3.3) or without
// (3.4), for any draft. Row "dsbd_wor" of decoding/method.h; the layer rules are
// decoding/layer/dsbd_wor_layer.h. Parameters have been checked.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "decoding/beam_decoder.h"
#include "decoding/drafter.h"
#include "decoding/layer/layer_rule.h"

namespace coppice::decoding {

// The rule for the decoding kind of the parameters.
std::unique_ptr<LayerRule> MakeDsbdWorRule(const DecodingParams& params, RemovedParents rule);

// Checks what the verifier relies on beyond DraftForest::Validate.
absl::Status CheckDsbdWorForest(const DraftForest& forest);

std::unique_ptr<BeamDecoder> MakeDsbdWorDecoder(const DecodingParams& params);
// Drafts W_S draws without replacement per layer.
std::unique_ptr<Drafter> MakeDsbdWorDrafter(const DecodingParams& params, const DraftState& state,
                                            int width);

}  // namespace coppice::decoding
