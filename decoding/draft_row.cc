#include <algorithm>
#include <utility>

#include "decoding/drafter.h"
#include "sampling/deterministic_math.h"
#include "sampling/logits_processing.h"
#include "sampling/target_row.h"

namespace coppice::decoding {
namespace {

// The `support` most likely entries, renormalised.
sampling::Distribution KeepMostLikely(const sampling::Distribution& row, size_t support) {
  if (row.size() <= support) return row;
  sampling::SamplingParams top;
  top.top_k = static_cast<int>(support);
  sampling::Distribution cut = sampling::CutRow(row.log_probs, top);
  for (TokenId& token : cut.tokens) token = row.tokens[token];
  return cut;
}

bool HasTopP(const sampling::SamplingParams& sampling) {
  return sampling.top_p > 0 && sampling.top_p < 1;
}

// With top-p, cuts the row to the support after logits processing.
sampling::Distribution Supported(sampling::Distribution row,
                                 const sampling::SamplingParams& sampling,
                                 const DecodingParams& params) {
  if (!HasTopP(sampling)) return row;
  return KeepMostLikely(row, std::max(1, params.draft_top_k));
}

}  // namespace

sampling::SamplingParams DraftSampling(sampling::SamplingParams sampling,
                                       const DecodingParams& params) {
  if (sampling.temperature <= 0 || sampling::IsJoint(sampling.mode)) {
    // Greedy: the target takes its argmax, so the draft ranks its guesses by the raw row.
    // JOINT and ROWCUT: the drafter processes the whole layer
    // (decoding/joint/joint_distribution.h).
    sampling = sampling::Uncut(std::move(sampling));
  }
  sampling.mode = sampling::SamplingScope::kRow;
  const int support = std::max(1, params.draft_top_k);
  // Without top-p every cut is a prefix of the same order, so cutting early changes nothing.
  if (!HasTopP(sampling))
    sampling.top_k = sampling.top_k > 0 ? std::min(sampling.top_k, support) : support;
  return sampling;
}

sampling::Distribution DraftRow(absl::Span<const float> logits, const DecodingParams& params,
                                const sampling::RowPath& path) {
  const sampling::SamplingParams sampling =
      DraftSampling(sampling::SamplingAt(params, path), params);
  return Supported(sampling::ProcessRow(logits, sampling), sampling, params);
}

sampling::Distribution DraftRow(const CandidateRow& row, const DecodingParams& params,
                                const sampling::RowPath& path) {
  const sampling::SamplingParams sampling =
      DraftSampling(sampling::SamplingAt(params, path), params);
  return Supported(sampling::ProcessList(row.lists[0], row.sums, sampling), sampling, params);
}

}  // namespace coppice::decoding
