#include "decoding/decision_cost.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "decoding/method.h"

namespace coppice::decoding {
namespace {

// Number of passes over the entries of a layer. 5.6 without replacement ranks one slot: every beam
// runs a race, and the beam of an output runs its race again. Both may happen a second time, to
// fill the places of ends.
int64_t Passes(const MethodRow& row, const DecodingParams& params) {
  const bool one_slot = row.name == "gumbel_slots" &&
                        params.kind == sampling::DecodingKind::kBeamSamplingWithoutReplacement;
  return one_slot ? 4 : MostBeams(params);
}

// Entries of a layer's law. top_k cuts each row or, in mode JOINT, the layer. The other cuts are
// not counted, because they depend on the rows.
int64_t Entries(const DecodingParams& params, int vocab_size) {
  const int64_t beams = MostBeams(params);
  const sampling::WarpParams& warp = params.warp;
  if (warp.top_k <= 0) return beams * vocab_size;
  const int64_t whole = beams * vocab_size;
  return std::min(whole, warp.mode == sampling::WarpMode::kJoint ? warp.top_k : beams * warp.top_k);
}

}  // namespace

int64_t LayerNoise(const DecodingParams& params, int vocab_size) {
  const absl::StatusOr<const MethodRow*> row = ResolveMethod(params);
  // The methods that serve the joint warps decide over the joint layer, in every mode.
  if (!row.ok() || !(*row)->joint_warps) return 0;
  return Passes(**row, params) * Entries(params, vocab_size);
}

absl::Status CheckDecisionCost(const DecodingParams& params, int vocab_size) {
  const int64_t noise = LayerNoise(params, vocab_size);
  if (noise <= kMaxLayerNoise) return absl::OkStatus();
  const bool replaces = params.kind == sampling::DecodingKind::kBeamSampling;
  return absl::InvalidArgumentError(absl::StrCat(
      "beam_width: ", MostBeams(params), " beams over a vocabulary of ", vocab_size, " take ",
      noise, " values of noise a layer with method ", (*ResolveMethod(params))->name, ", at most ",
      kMaxLayerNoise, " are served; a smaller beam_width, top_k, or ",
      sampling::IsJoint(params.warp.mode) ? "warp_mode row with " : "", "method ",
      replaces ? "pf_gumbel" : "hg_wor", " takes fewer"));
}

}  // namespace coppice::decoding
