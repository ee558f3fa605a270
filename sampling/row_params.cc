#include "sampling/row_params.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/shown_name.h"

namespace coppice::sampling {

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
      "decoding: unknown value '", ShownName(name),
      "', want multinomial, beam_sampling, beam_sampling_without_replacement or beam_search"));
}

absl::string_view WarpModeName(WarpMode mode) {
  switch (mode) {
    case WarpMode::kRow:
      return "row";
    case WarpMode::kRowRaw:
      return "row_raw";
    case WarpMode::kJoint:
      return "joint";
    case WarpMode::kRowCut:
      return "rowcut";
  }
  return "unknown";
}

absl::StatusOr<WarpMode> ParseWarpMode(absl::string_view name) {
  for (WarpMode mode : {WarpMode::kRow, WarpMode::kRowRaw, WarpMode::kJoint, WarpMode::kRowCut}) {
    if (name == WarpModeName(mode)) return mode;
  }
  return absl::InvalidArgumentError(absl::StrCat("warp_mode: unknown value '", ShownName(name),
                                                 "', want row, row_raw, joint or rowcut"));
}

}  // namespace coppice::sampling
