#include <algorithm>
#include <utility>

#include "base/deterministic_math.h"
#include "decoding/drafter.h"
#include "decoding/rows/target_row.h"
#include "decoding/rows/warp.h"

namespace coppice::decoding {
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

bool HasTopP(const WarpParams& warp) { return warp.top_p > 0 && warp.top_p < 1; }

// With top-p, cuts the row to the support after the warp.
Distribution Supported(Distribution row, const WarpParams& warp, const DecodingParams& params) {
  if (!HasTopP(warp)) return row;
  return KeepMostLikely(row, std::max(1, params.draft_support));
}

}  // namespace

WarpParams DraftWarp(WarpParams warp, const DecodingParams& params) {
  if (warp.temperature <= 0 || IsJoint(warp.mode)) {
    // Greedy: the target takes its argmax, so the draft ranks its guesses by the unwarped row.
    // JOINT and ROWCUT: the drafter warps the whole layer (decoding/law/joint_law.h).
    warp = Uncut(std::move(warp));
  }
  warp.mode = WarpMode::kRow;
  const int support = std::max(1, params.draft_support);
  // Without top-p every cut is a prefix of the same order, so cutting early changes nothing.
  if (!HasTopP(warp)) warp.top_k = warp.top_k > 0 ? std::min(warp.top_k, support) : support;
  return warp;
}

Distribution DraftRow(absl::Span<const float> logits, const DecodingParams& params,
                      const RowPath& path) {
  const WarpParams warp = DraftWarp(WarpAt(params, path), params);
  return Supported(WarpRow(logits, warp), warp, params);
}

Distribution DraftRow(const ListedRow& row, const DecodingParams& params, const RowPath& path) {
  const WarpParams warp = DraftWarp(WarpAt(params, path), params);
  return Supported(WarpList(row.lists[0], row.sums, warp), warp, params);
}

}  // namespace coppice::decoding
