#include "decoding/layer/dsbd_single_kv.h"

#include "decoding/layer/dsbd.h"
#include "decoding/layer/layered_decoder.h"

namespace coppice::decoding {

std::unique_ptr<BeamDecoder> MakeDsbdSingleKvDecoder(const DecodingParams& params) {
  return std::make_unique<LayeredDecoder>(
      params, std::make_unique<DsbdRule>(RemovedParents::kReject, DsbdWidthRule(params)),
      DrawKind::kIndependent, std::make_shared<SeededChoices>(params.seed), KeptBeams::kBest);
}

}  // namespace coppice::decoding
