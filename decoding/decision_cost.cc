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
  const bool one_slot = row.name == "joint_gumbel_coupling" &&
                        params.kind == sampling::DecodingKind::kBeamSamplingWithoutReplacement;
  return one_slot ? 4 : MostBeams(params);
}

// Entries of a layer's distribution. top_k cuts each row or, in mode JOINT, the layer. The other
// cuts are not counted, because they depend on the rows.
int64_t Entries(const DecodingParams& params, int vocab_size) {
  const int64_t beams = MostBeams(params);
  const sampling::SamplingParams& sampling = params.sampling;
  if (sampling.top_k <= 0) return beams * vocab_size;
  const int64_t whole = beams * vocab_size;
  return std::min(whole, sampling.mode == sampling::SamplingScope::kJoint ? sampling.top_k
                                                                          : beams * sampling.top_k);
}

}  // namespace

int64_t LayerNoise(const DecodingParams& params, int vocab_size) {
  const absl::StatusOr<const MethodRow*> row = ResolveMethod(params);
  // The methods that serve the joint sampling scopes decide over the joint layer, in every mode.
  if (!row.ok() || !(*row)->joint_sampling) return 0;
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
      sampling::IsJoint(params.sampling.mode) ? "sampling_scope row with " : "", "method ",
      replaces ? "gumbel_coupling" : "gumbel_top_k", " takes fewer"));
}

}  // namespace coppice::decoding
