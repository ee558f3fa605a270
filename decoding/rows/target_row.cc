#include "decoding/rows/target_row.h"

#include <limits>
#include <utility>

#include "decoding/rows/warp.h"
#include "decoding/rows/warped_row.h"

namespace coppice::decoding {

WarpParams WarpAt(const DecodingParams& params, int length) {
  WarpParams warp = params.warp;
  if (length >= params.min_tokens) return warp;
  for (TokenId stop : params.stop_ids) {
    warp.logit_bias.emplace_back(stop, -std::numeric_limits<double>::infinity());
  }
  return warp;
}

WarpParams Uncut(WarpParams warp) {
  warp = WithoutCuts(std::move(warp));
  warp.temperature = 1;
  return warp;
}

TargetRow ReadTargetRow(RowSource* rows, int row, const DecodingParams& params, int length) {
  WarpedRow warped(params);
  warped.Read(rows, row, length);
  return warped.Materialise();
}

}  // namespace coppice::decoding
