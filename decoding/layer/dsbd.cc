#include "decoding/layer/dsbd.h"

#include <algorithm>

#include "decoding/layer/layered_decoder.h"
#include "decoding/layer/layered_drafter.h"

namespace coppice::decoding {
namespace {

std::unique_ptr<BeamDecoder> MakeDecoder(const DecodingParams& params, RemovedParents rule) {
  return std::make_unique<LayeredDecoder>(
      params, std::make_unique<DsbdRule>(rule, DsbdWidthRule(params)), DrawKind::kIndependent,
      std::make_shared<SeededChoices>(params.seed));
}

}  // namespace

WidthRule DsbdWidthRule(const DecodingParams& params) {
  const int automatic = AutoDraftWidth(params.beam_width);
  const int draft_width = params.draft_width > 0 ? params.draft_width : automatic;
  return {params.width_threshold, params.min_width, std::max(params.min_width, draft_width)};
}

absl::Status CheckDsbdForest(const DraftForest& forest) {
  return CheckSentDraws(forest, DrawKind::kIndependent);
}

std::unique_ptr<BeamDecoder> MakeDsbdDecoder(const DecodingParams& params) {
  return MakeDecoder(params, RemovedParents::kReject);
}

std::unique_ptr<BeamDecoder> MakeDsbdRenormaliseDecoder(const DecodingParams& params) {
  return MakeDecoder(params, RemovedParents::kRenormalise);
}

std::unique_ptr<Drafter> MakeDsbdDrafter(const DecodingParams& params, const DraftState& state,
                                         int width) {
  return std::make_unique<LayeredDrafter>(params, state, width, DrawKind::kIndependent,
                                          std::make_shared<SeededChoices>(params.seed));
}

}  // namespace coppice::decoding
