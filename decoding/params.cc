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
  return absl::InvalidArgumentError(
      absl::StrCat("warp_mode: unknown value '", name, "', want row, row_raw, joint or rowcut"));
}

int AutoDraftWidth(int beam_width) { return beam_width == 1 ? 4 : 2 * beam_width; }

int64_t KvBlocksBound(const DecodingParams& params, int64_t prompt_tokens, int block_size) {
  constexpr int64_t kSlack = 5;
  const auto blocks = [&](int64_t tokens) { return (tokens + block_size - 1) / block_size; };
  const int64_t beams = params.beam_width;
  const int64_t chains = beams == 1 ? 0 : beams * blocks(params.max_tokens);
  const int64_t width =
      params.draft_width > 0 ? params.draft_width : AutoDraftWidth(params.beam_width);
  const int64_t depth = params.draft_depth > 0 ? params.draft_depth : kMaxAutoDraftDepth;
  const int64_t forest = params.method == "none" ? 0 : width * depth;
  return blocks(prompt_tokens + params.max_tokens) + chains + blocks(forest + 2 * beams) + beams +
         kSlack;
}

}  // namespace coppice
