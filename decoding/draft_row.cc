#include <algorithm>
#include <utility>

#include "decoding/drafter.h"
#include "sampling/deterministic_math.h"
#include "sampling/target_row.h"
#include "sampling/warp.h"

namespace coppice::decoding {
namespace {

// The `support` most likely entries, renormalised.
sampling::Distribution KeepMostLikely(const sampling::Distribution& row, size_t support) {
  if (row.size() <= support) return row;
  sampling::WarpParams top;
  top.top_k = static_cast<int>(support);
  sampling::Distribution cut = sampling::CutRow(row.log_probs, top);
  for (TokenId& token : cut.tokens) token = row.tokens[token];
  return cut;
}

bool HasTopP(const sampling::WarpParams& warp) { return warp.top_p > 0 && warp.top_p < 1; }

// With top-p, cuts the row to the support after the warp.
sampling::Distribution Supported(sampling::Distribution row, const sampling::WarpParams& warp,
                                 const DecodingParams& params) {
  if (!HasTopP(warp)) return row;
  return KeepMostLikely(row, std::max(1, params.draft_support));
}

}  // namespace

sampling::WarpParams DraftWarp(sampling::WarpParams warp, const DecodingParams& params) {
  if (warp.temperature <= 0 || sampling::IsJoint(warp.mode)) {
    // Greedy: the target takes its argmax, so the draft ranks its guesses by the unwarped row.
    // JOINT and ROWCUT: the drafter warps the whole layer (decoding/law/joint_law.h).
    warp = sampling::Uncut(std::move(warp));
  }
  warp.mode = sampling::WarpMode::kRow;
  const int support = std::max(1, params.draft_support);
  // Without top-p every cut is a prefix of the same order, so cutting early changes nothing.
  if (!HasTopP(warp)) warp.top_k = warp.top_k > 0 ? std::min(warp.top_k, support) : support;
  return warp;
}

sampling::Distribution DraftRow(absl::Span<const float> logits, const DecodingParams& params,
                                const sampling::RowPath& path) {
  const sampling::WarpParams warp = DraftWarp(sampling::WarpAt(params, path), params);
  return Supported(sampling::WarpRow(logits, warp), warp, params);
}

sampling::Distribution DraftRow(const ListedRow& row, const DecodingParams& params,
                                const sampling::RowPath& path) {
  const sampling::WarpParams warp = DraftWarp(sampling::WarpAt(params, path), params);
  return Supported(sampling::WarpList(row.lists[0], row.sums, warp), warp, params);
}

}  // namespace coppice::decoding
