#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "decoding/beam_decoder.h"
#include "decoding/drafter.h"
#include "decoding/method.h"
#include "decoding/parameter.h"
#include "decoding/parameter_rules.h"
#include "sampling/deterministic_math.h"

namespace coppice::decoding {
namespace {

absl::Status Bad(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
}

// Whether the node that decodes has what the texts of the parameters need.
absl::Status CheckTexts(const DecodingParams& params) {
  if (!params.stop_strings.empty() && params.stop_text == nullptr)
    return Bad("stop_strings", "there is nothing that finds them");
  const bool asked = params.format_spec.kind != FormatSpec::Kind::kNone;
  if (!asked && params.format == nullptr) return absl::OkStatus();
  if (params.format == nullptr) return Bad("format_spec", "there is nothing that knows the format");
  if (params.format->has_complete_states()) return absl::OkStatus();  // it ends texts by itself
  if (const absl::string_view why = NoEndOfFormat(params); !why.empty())
    return Bad("format_spec", why);
  return absl::OkStatus();
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
  double best = sampling::kInfinity;
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
  COPPICE_RETURN_IF_ERROR(CheckParameters(params));
  COPPICE_RETURN_IF_ERROR(CheckTexts(params));
  COPPICE_RETURN_IF_ERROR(CheckRules(params));
  COPPICE_ASSIGN_OR_RETURN(const MethodRow* row, ResolveMethod(params));
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
  COPPICE_RETURN_IF_ERROR(CheckDraftRules(params, *row));
  return row->make_drafter(Neutralised(params), state, width);
}

}  // namespace coppice::decoding
