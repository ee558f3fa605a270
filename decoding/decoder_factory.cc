#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "decoding/beam_decoder.h"
#include "decoding/drafter.h"
#include "decoding/method.h"
#include "decoding/parameter.h"
#include "decoding/topology.h"

namespace coppice::decoding {
namespace {

absl::Status Bad(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
}

absl::Status CheckSampling(const DecodingParams& params) {
  const sampling::SamplingParams& sampling = params.sampling;
  for (const auto& [token, bias] : sampling.logit_bias) {
    if (std::isnan(bias) || bias == std::numeric_limits<double>::infinity()) {
      return Bad("logit_bias", absl::StrCat("bias of token ", token, " must be finite or -inf"));
    }
  }
  if (const ParameterRow* penalty = UnservedPenalty(params)) {
    return Bad(penalty->name, absl::StrCat("cannot be combined with sampling_scope ",
                                           sampling::SamplingScopeName(sampling.mode)));
  }
  const bool draws = params.kind == sampling::DecodingKind::kBeamSampling ||
                     params.kind == sampling::DecodingKind::kBeamSamplingWithoutReplacement;
  if (draws && sampling.temperature == 0) {
    return Bad("temperature",
               absl::StrCat("0 makes every beam of ", sampling::DecodingKindName(params.kind),
                            " the same; want > 0, or decoding beam_search"));
  }
  if (params.kind != sampling::DecodingKind::kBeamSearch) return absl::OkStatus();
  for (const ParameterRow& row : Parameters()) {
    if (row.read_by == ReadBy::kSampling && row.scalar() && !IsNeutral(row, params)) {
      return Bad(row.name, "beam_search takes no sampling parameters");
    }
  }
  return absl::OkStatus();
}

// Checks the parameters against the method. Each is already in its range.
absl::Status CheckOptions(const MethodRow& row, const DecodingParams& params) {
  if (row.reads("min_width") && params.min_width > params.beam_width) {
    return Bad("min_width",
               absl::StrCat("must be between 1 and beam_width, got ", params.min_width));
  }
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

absl::Status CheckFormat(const DecodingParams& params) {
  const bool asked = params.format_spec.kind != FormatSpec::Kind::kNone;
  if (!asked && params.format == nullptr) return absl::OkStatus();
  if (params.format == nullptr) return Bad("format_spec", "there is nothing that knows the format");
  if (const std::string conflict = FormatConflict(params); !conflict.empty())
    return Bad("format_spec", conflict);
  if (const absl::string_view why = NoEndOfFormat(params); !why.empty())
    return Bad("format_spec", why);
  return absl::OkStatus();
}

absl::Status CheckParams(const DecodingParams& params) {
  COPPICE_RETURN_IF_ERROR(CheckParameters(params));
  if (params.kind == sampling::DecodingKind::kMultinomial && params.beam_width != 1) {
    return Bad("beam_width",
               absl::StrCat("multinomial decoding has width 1, got ", params.beam_width));
  }
  if (params.num_hypotheses > params.beam_width) {
    return Bad("n", absl::StrCat("must be between 1 and beam_width, got ", params.num_hypotheses));
  }
  if (params.set_semantics && params.kind != sampling::DecodingKind::kBeamSampling) {
    return Bad("beam_duplicates", absl::StrCat("'once' is for beam_sampling, not ",
                                               sampling::DecodingKindName(params.kind)));
  }
  if (!params.stop_strings.empty() && params.stop_text == nullptr)
    return Bad("stop_strings", "there is nothing that finds them");
  COPPICE_RETURN_IF_ERROR(CheckFormat(params));
  return CheckSampling(params);
}

// Beam search ranks raw log-probabilities. Temperature 0 does not change that.
DecodingParams Neutralised(DecodingParams params) {
  if (params.kind == sampling::DecodingKind::kBeamSearch) params.sampling.temperature = 1;
  return params;
}

// The known roots and their children, of a state with `roots` roots for `beams` beams.
absl::Status CheckKnown(const DraftState& state, size_t beams) {
  const auto roots = static_cast<int32_t>(state.root_hash.size());
  int32_t before = -1;
  for (const int32_t root : state.known_roots) {
    if (root <= before || root >= roots)
      return Bad("draft state", absl::StrCat("known root ", root));
    before = root;
  }
  if (state.known_children.size() > beams) {
    return Bad("draft state", absl::StrCat(state.known_children.size(),
                                           " known children, the decoding has ", beams, " beams"));
  }
  double best = std::numeric_limits<double>::infinity();
  for (const DraftState::KnownChild& child : state.known_children) {
    if (!std::binary_search(state.known_roots.begin(), state.known_roots.end(), child.root))
      return Bad("draft state", absl::StrCat("a known child of root ", child.root));
    if (!(child.key <= best))
      return Bad("draft state", absl::StrCat("a known child with the key ", child.key));
    best = child.key;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<BeamDecoder>> MakeBeamDecoder(const DecodingParams& params) {
  COPPICE_RETURN_IF_ERROR(CheckParams(params));
  COPPICE_ASSIGN_OR_RETURN(const MethodRow* row, ResolveMethod(params));
  COPPICE_RETURN_IF_ERROR(CheckOptions(*row, params));
  return row->make_decoder(Neutralised(params));
}

absl::StatusOr<std::unique_ptr<Drafter>> MakeDrafter(const DecodingParams& params,
                                                     const DraftState& state, int width) {
  if (width < 1) return Bad("draft_width", absl::StrCat("must be at least 1, got ", width));
  const size_t roots = state.root_hash.size();
  if (roots == 0 || state.root_score.size() != roots || state.root_multiplicity.size() != roots) {
    return Bad("draft state",
               absl::StrCat(roots, " root hashes, ", state.root_score.size(), " scores, ",
                            state.root_multiplicity.size(), " multiplicities"));
  }
  const bool one_path = params.kind == sampling::DecodingKind::kMultinomial;
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
  COPPICE_RETURN_IF_ERROR(CheckKnown(state, beams));
  if (params.plain) return Bad("speculative.method", "'none' drafts nothing");
  COPPICE_ASSIGN_OR_RETURN(const MethodRow* row, ResolveMethod(params));
  if (row->form == DraftForm::kNone) {
    return Bad("speculative.method", absl::StrCat("'", row->name, "' drafts nothing"));
  }
  COPPICE_RETURN_IF_ERROR(CheckOptions(*row, params));
  return row->make_drafter(Neutralised(params), state, width);
}

}  // namespace coppice::decoding
