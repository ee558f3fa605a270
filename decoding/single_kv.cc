#include "decoding/single_kv.h"

#include "decoding/dsbd.h"
#include "decoding/layered_decoder.h"

namespace coppice {

std::unique_ptr<BeamDecoder> MakeSingleKvDecoder(const DecodingParams& params) {
  return std::make_unique<LayeredDecoder>(
      params, std::make_unique<DsbdRule>(RemovedParents::kReject, DsbdWidthRule(params)),
      DrawLaw::kIndependent, std::make_shared<SeededChoices>(params.seed), KeptBeams::kBest);
}

}  // namespace coppice
