#include "decoding/params.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace coppice {

absl::string_view DecodingKindName(DecodingKind kind) {
  switch (kind) {
    case DecodingKind::kMultinomial:
      return "multinomial";
    case DecodingKind::kBeamSampling:
      return "beam_sampling";
    case DecodingKind::kBeamSamplingWithoutReplacement:
      return "beam_sampling_without_replacement";
    case DecodingKind::kBeamSearch:
      return "beam_search";
  }
  return "unknown";
}

absl::StatusOr<DecodingKind> ParseDecodingKind(absl::string_view name) {
  for (DecodingKind kind :
       {DecodingKind::kMultinomial, DecodingKind::kBeamSampling,
        DecodingKind::kBeamSamplingWithoutReplacement, DecodingKind::kBeamSearch}) {
    if (name == DecodingKindName(kind)) return kind;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "decoding: unknown value '", name,
      "', want multinomial, beam_sampling, beam_sampling_without_replacement or beam_search"));
}

absl::string_view WarpModeName(WarpMode mode) { return mode == WarpMode::kRow ? "row" : "row_raw"; }

absl::StatusOr<WarpMode> ParseWarpMode(absl::string_view name) {
  if (name == "row") return WarpMode::kRow;
  if (name == "row_raw") return WarpMode::kRowRaw;
  return absl::InvalidArgumentError(
      absl::StrCat("warp_mode: unknown value '", name, "', want row or row_raw"));
}

}  // namespace coppice
