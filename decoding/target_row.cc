#include "decoding/target_row.h"

#include <limits>

#include "decoding/warped_row.h"

namespace coppice {

WarpParams WarpAt(const DecodingParams& params, int length) {
  WarpParams warp = params.warp;
  if (length >= params.min_tokens) return warp;
  for (TokenId stop : params.stop_ids) {
    warp.logit_bias.emplace_back(stop, -std::numeric_limits<double>::infinity());
  }
  return warp;
}

WarpParams Uncut(WarpParams warp) {
  warp.temperature = 1;
  warp.top_k = 0;
  warp.top_p = 1;
  warp.min_p = 0;
  return warp;
}

TargetRow ReadTargetRow(RowSource* rows, int row, const DecodingParams& params, int length) {
  WarpedRow warped(params);
  warped.Read(rows, row, length);
  return warped.Materialise();
}

}  // namespace coppice
