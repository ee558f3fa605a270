#include "decoding/layer/wor_reuse.h"

#include "decoding/layer/layered_decoder.h"
#include "decoding/layer/layered_drafter.h"
#include "decoding/layer/wor_reuse_layer.h"

namespace coppice::decoding {

std::unique_ptr<LayerRule> MakeWorReuseRule(const DecodingParams& params, RemovedParents rule) {
  if (params.kind == sampling::DecodingKind::kBeamSampling)
    return std::make_unique<WorReuseRule>(rule);
  return std::make_unique<DistinctWorReuseRule>(rule);
}

absl::Status CheckWorReuseForest(const DraftForest& forest) {
  return CheckShippedDraws(forest, DrawLaw::kDistinct);
}

std::unique_ptr<BeamDecoder> MakeWorReuseDecoder(const DecodingParams& params) {
  return std::make_unique<LayeredDecoder>(params, MakeWorReuseRule(params, RemovedParents::kReject),
                                          DrawLaw::kDistinct,
                                          std::make_shared<SeededChoices>(params.seed));
}

std::unique_ptr<Drafter> MakeWorReuseDrafter(const DecodingParams& params, const DraftState& state,
                                             int width) {
  return std::make_unique<LayeredDrafter>(params, state, width, DrawLaw::kDistinct,
                                          std::make_shared<SeededChoices>(params.seed));
}

}  // namespace coppice::decoding
