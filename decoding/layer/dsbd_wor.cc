#include "decoding/layer/dsbd_wor.h"

#include "decoding/layer/dsbd_wor_layer.h"
#include "decoding/layer/layered_decoder.h"
#include "decoding/layer/layered_drafter.h"

namespace coppice::decoding {

std::unique_ptr<LayerRule> MakeDsbdWorRule(const DecodingParams& params, RemovedParents rule) {
  if (params.kind == sampling::DecodingKind::kBeamSampling)
    return std::make_unique<DsbdWorRule>(rule);
  return std::make_unique<DistinctDsbdWorRule>(rule);
}

absl::Status CheckDsbdWorForest(const DraftForest& forest) {
  return CheckSentDraws(forest, DrawKind::kDistinct);
}

std::unique_ptr<BeamDecoder> MakeDsbdWorDecoder(const DecodingParams& params) {
  return std::make_unique<LayeredDecoder>(params, MakeDsbdWorRule(params, RemovedParents::kReject),
                                          DrawKind::kDistinct,
                                          std::make_shared<SeededChoices>(params.seed));
}

std::unique_ptr<Drafter> MakeDsbdWorDrafter(const DecodingParams& params, const DraftState& state,
                                            int width) {
  return std::make_unique<LayeredDrafter>(params, state, width, DrawKind::kDistinct,
                                          std::make_shared<SeededChoices>(params.seed));
}

}  // namespace coppice::decoding
