#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "decoding/beam_decoder.h"
#include "decoding/drafter.h"
#include "decoding/method.h"
#include "decoding/topology.h"

namespace coppice {
namespace {

absl::Status Bad(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
}

absl::Status CheckShare(absl::string_view field, double value) {
  if (value >= 0 && value <= 1) return absl::OkStatus();
  return Bad(field, absl::StrCat("must be in [0, 1], got ", value));
}

absl::Status CheckAtLeastOne(absl::string_view field, int value) {
  if (value >= 1) return absl::OkStatus();
  return Bad(field, absl::StrCat("must be at least 1, got ", value));
}

absl::Status CheckWarp(const DecodingParams& params) {
  const WarpParams& warp = params.warp;
  if (!IsTemperature(warp.temperature)) {
    return Bad("temperature", absl::StrCat("must be 0 or finite and at least ", kLeastTemperature,
                                           ", got ", warp.temperature));
  }
  if (warp.top_k < 0) return Bad("top_k", "must be >= 0");
  if (!(warp.top_p >= 0 && warp.top_p <= 1)) return Bad("top_p", "must be in [0, 1]");
  if (!(warp.min_p >= 0 && warp.min_p <= 1)) return Bad("min_p", "must be in [0, 1]");
  for (const auto& [token, bias] : warp.logit_bias) {
    if (std::isnan(bias) || bias == std::numeric_limits<double>::infinity()) {
      return Bad("logit_bias", absl::StrCat("bias of token ", token, " must be finite or -inf"));
    }
  }
  const bool sampling = params.kind == DecodingKind::kBeamSampling ||
                        params.kind == DecodingKind::kBeamSamplingWithoutReplacement;
  if (sampling && warp.temperature == 0) {
    return Bad("temperature", absl::StrCat("0 makes every beam of ", DecodingKindName(params.kind),
                                           " the same; want > 0, or decoding beam_search"));
  }
  if (params.kind != DecodingKind::kBeamSearch) return absl::OkStatus();
  const bool neutral = (warp.temperature == 0 || warp.temperature == 1) && warp.top_k == 0 &&
                       (warp.top_p == 0 || warp.top_p == 1) && warp.min_p == 0;
  return neutral ? absl::OkStatus()
                 : Bad("temperature",
                       "beam_search takes no warp: temperature 1, no top_k, top_p or min_p");
}

// 5.3: t in (0, 1], 0 = fixed width; W_min in 1..W.
absl::Status CheckWidthRule(const DecodingParams& params) {
  if (!(params.width_threshold >= 0 && params.width_threshold <= 1)) {
    return Bad("width_threshold", absl::StrCat("must be in [0, 1], got ", params.width_threshold));
  }
  if (params.min_width < 1 || params.min_width > params.beam_width) {
    return Bad("min_width",
               absl::StrCat("must be between 1 and beam_width, got ", params.min_width));
  }
  return absl::OkStatus();
}

// What the method reads must be in range; what it does not read has no effect.
absl::Status CheckOptions(const MethodRow& row, const DecodingParams& params) {
  if (row.reads("width_threshold")) COPPICE_RETURN_IF_ERROR(CheckWidthRule(params));
  COPPICE_RETURN_IF_ERROR(CheckShare("mjsd_threshold", params.mjsd_threshold));
  COPPICE_RETURN_IF_ERROR(CheckShare("fallback_threshold", params.fallback_threshold));
  if (!(params.rollback_threshold >= 0) || !std::isfinite(params.rollback_threshold)) {
    return Bad("rollback_threshold", "must be finite and >= 0 nats");
  }
  COPPICE_RETURN_IF_ERROR(CheckAtLeastOne("draft_beams", params.draft_beams));
  COPPICE_RETURN_IF_ERROR(CheckAtLeastOne("joint_tokens", params.joint_tokens));
  const int width = row.form == DraftForm::kTree ? std::max(1, params.draft_width) : 1;
  COPPICE_ASSIGN_OR_RETURN(const Topology tree, ParseTopology(params.draft_tree, width));
  if (row.most_children > 0 && tree.MostChildren() > row.most_children) {
    return Bad(params.draft_tree.empty() ? "draft_width" : "draft_tree",
               absl::StrCat("'", row.name, "' drafts at most ", row.most_children,
                            " children of a node, got ", tree.MostChildren()));
  }
  if (row.form == DraftForm::kPath && params.draft_width > 1) {
    return Bad("draft_width",
               absl::StrCat("'", row.name, "' drafts one path, got ", params.draft_width));
  }
  return absl::OkStatus();
}

absl::Status CheckParams(const DecodingParams& params) {
  COPPICE_RETURN_IF_ERROR(CheckAtLeastOne("beam_width", params.beam_width));
  if (params.kind == DecodingKind::kMultinomial && params.beam_width != 1) {
    return Bad("beam_width",
               absl::StrCat("multinomial decoding has width 1, got ", params.beam_width));
  }
  if (params.num_hypotheses < 1 || params.num_hypotheses > params.beam_width) {
    return Bad("n", absl::StrCat("must be between 1 and beam_width, got ", params.num_hypotheses));
  }
  COPPICE_RETURN_IF_ERROR(CheckAtLeastOne("max_tokens", params.max_tokens));
  if (!std::isfinite(params.length_penalty)) return Bad("length_penalty", "must be finite");
  if (params.set_semantics && params.kind != DecodingKind::kBeamSampling) {
    return Bad("beam_duplicates",
               absl::StrCat("'once' is for beam_sampling, not ", DecodingKindName(params.kind)));
  }
  return CheckWarp(params);
}

// Beam search ranks raw log-probabilities; its temperature 0 means the same.
DecodingParams Neutralised(DecodingParams params) {
  if (params.kind == DecodingKind::kBeamSearch) params.warp.temperature = 1;
  return params;
}

// The row that serves the parameters; "none" decodes by the row of "auto", undrafted.
absl::StatusOr<const MethodRow*> RowFor(const DecodingParams& params) {
  const std::string& wanted = params.method;
  COPPICE_ASSIGN_OR_RETURN(const std::string method,
                           ResolveMethod(wanted == "none" ? "auto" : wanted, params));
  return FindMethod(method);
}

}  // namespace

absl::StatusOr<std::unique_ptr<BeamDecoder>> MakeBeamDecoder(const DecodingParams& params) {
  COPPICE_RETURN_IF_ERROR(CheckParams(params));
  COPPICE_ASSIGN_OR_RETURN(const MethodRow* row, RowFor(params));
  COPPICE_RETURN_IF_ERROR(CheckOptions(*row, params));
  return row->make_decoder(Neutralised(params));
}

absl::StatusOr<std::unique_ptr<Drafter>> MakeDrafter(const DecodingParams& params,
                                                     const DraftState& state, int width) {
  COPPICE_RETURN_IF_ERROR(CheckAtLeastOne("draft_width", width));
  const size_t roots = state.root_hash.size();
  if (roots == 0 || state.root_score.size() != roots || state.root_multiplicity.size() != roots) {
    return Bad("draft state",
               absl::StrCat(roots, " root hashes, ", state.root_score.size(), " scores, ",
                            state.root_multiplicity.size(), " multiplicities"));
  }
  const bool one_path = params.kind == DecodingKind::kMultinomial;
  const size_t beams = one_path ? 1 : static_cast<size_t>(MostBeams(params));
  if (roots > beams || state.slot_root.size() > beams) {
    return Bad("draft state", absl::StrCat(roots, " roots and ", state.slot_root.size(),
                                           " slots, the decoding has ", beams, " beams"));
  }
  for (int32_t root : state.slot_root) {
    if (root < 0 || static_cast<size_t>(root) >= roots)
      return Bad("draft state", absl::StrCat("slot root ", root));
  }
  if (const size_t known = state.slot_token.size();
      state.slot_log_prob.size() != known || (known > 0 && known != state.slot_root.size())) {
    return Bad("draft state",
               absl::StrCat(state.slot_root.size(), " slots, ", known, " known tokens, ",
                            state.slot_log_prob.size(), " log-probabilities"));
  }
  if (params.method == "none") return Bad("speculative.method", "'none' drafts nothing");
  COPPICE_ASSIGN_OR_RETURN(const MethodRow* row, RowFor(params));
  if (row->form == DraftForm::kNone) {
    return Bad("speculative.method", absl::StrCat("'", row->name, "' drafts nothing"));
  }
  COPPICE_RETURN_IF_ERROR(CheckOptions(*row, params));
  return row->make_drafter(Neutralised(params), state, width);
}

}  // namespace coppice
