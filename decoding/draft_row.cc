#include <algorithm>

#include "base/deterministic_math.h"
#include "decoding/drafter.h"
#include "decoding/target_row.h"
#include "decoding/warp.h"

namespace coppice {
namespace {

// The `support` most likely entries, renormalised.
Distribution KeepMostLikely(const Distribution& row, size_t support) {
  if (row.size() <= support) return row;
  WarpParams top;
  top.top_k = static_cast<int>(support);
  Distribution cut = CutRow(row.log_probs, top);
  for (TokenId& token : cut.tokens) token = row.tokens[token];
  return cut;
}

}  // namespace

Distribution DraftRow(absl::Span<const float> logits, const DecodingParams& params, int length) {
  WarpParams warp = WarpAt(params, length);
  if (warp.temperature <= 0 || IsJoint(warp.mode)) {
    // Greedy: the target takes its argmax; the draft ranks guesses by the plain row. JOINT, ROWCUT:
    // the drafter warps the layer (decoding/joint_law.h).
    warp = Uncut(warp);
  }
  const int support = std::max(1, params.draft_support);
  if (!(warp.top_p > 0 && warp.top_p < 1)) {
    // Without top-p every cut is a prefix of one order, so cutting early is cutting the same.
    warp.top_k = warp.top_k > 0 ? std::min(warp.top_k, support) : support;
    return WarpRow(logits, warp);
  }
  return KeepMostLikely(WarpRow(logits, warp), support);
}

}  // namespace coppice
