// Speculative beam sampling by rejection: DSBD, docs/algorithms.md 5.1-5.3. Distribution at fixed
// width: beam sampling with replacement (3.3), for any draft. With a width threshold each layer is
// iid from P given its width. Rows "dsbd" (rule E of 5.2) and "dsbd_renormalise" (rule N) of
// decoding/method.h; the layer rule is decoding/layer/dsbd_layer.h. Parameters have been checked.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "decoding/beam_decoder.h"
#include "decoding/drafter.h"
#include "decoding/layer/dsbd_layer.h"

namespace coppice::decoding {

// The width of every layer: beam_width, or 5.3 capped at W_max = max(min_width, draft width).
WidthRule DsbdWidthRule(const DecodingParams& params);

// Checks what the verifier relies on beyond DraftForest::Validate.
absl::Status CheckDsbdForest(const DraftForest& forest);

std::unique_ptr<BeamDecoder> MakeDsbdDecoder(const DecodingParams& params);             // rule E
std::unique_ptr<BeamDecoder> MakeDsbdRenormaliseDecoder(const DecodingParams& params);  // rule N
// Drafts W_S iid draws per layer.
std::unique_ptr<Drafter> MakeDsbdDrafter(const DecodingParams& params, const DraftState& state,
                                         int width);

}  // namespace coppice::decoding
