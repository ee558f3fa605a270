#include "sampling/row_params.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/printable_name.h"

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
      "decoding: unknown value '", PrintableName(name),
      "', want multinomial, beam_sampling, beam_sampling_without_replacement or beam_search"));
}

absl::string_view SamplingScopeName(SamplingScope mode) {
  switch (mode) {
    case SamplingScope::kRow:
      return "row";
    case SamplingScope::kRowRaw:
      return "row_raw";
    case SamplingScope::kJoint:
      return "joint";
    case SamplingScope::kRowCut:
      return "rowcut";
  }
  return "unknown";
}

absl::StatusOr<SamplingScope> ParseSamplingScope(absl::string_view name) {
  for (SamplingScope mode : {SamplingScope::kRow, SamplingScope::kRowRaw, SamplingScope::kJoint,
                             SamplingScope::kRowCut}) {
    if (name == SamplingScopeName(mode)) return mode;
  }
  return absl::InvalidArgumentError(absl::StrCat("sampling_scope: unknown value '",
                                                 PrintableName(name),
                                                 "', want row, row_raw, joint or rowcut"));
}

}  // namespace coppice::sampling
