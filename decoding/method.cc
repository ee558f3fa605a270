#include "decoding/method.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "decoding/beam_decoder.h"
#include "decoding/drafter.h"
#include "decoding/layer/dsbd.h"
#include "decoding/layer/pf_rrs.h"
#include "decoding/layer/single_kv.h"
#include "decoding/layer/wor_reuse.h"
#include "decoding/lossy/bild.h"
#include "decoding/lossy/mjgd.h"
#include "decoding/lossy/mjsd.h"
#include "decoding/seeded/gumbel_slots.h"
#include "decoding/seeded/pf_gumbel.h"
#include "decoding/seeded/search.h"
#include "decoding/tree/block_verification.h"
#include "decoding/tree/greedy_multi_draft.h"
#include "decoding/tree/k_seq.h"
#include "decoding/tree/luce_ot.h"
#include "decoding/tree/topology_drafter.h"
#include "decoding/tree/tree_decoder.h"

namespace coppice::decoding {
namespace {

constexpr sampling::DecodingKind kMultinomial = sampling::DecodingKind::kMultinomial;
constexpr sampling::DecodingKind kBeamSampling = sampling::DecodingKind::kBeamSampling;
constexpr sampling::DecodingKind kWithoutReplacement =
    sampling::DecodingKind::kBeamSamplingWithoutReplacement;
constexpr sampling::DecodingKind kBeamSearch = sampling::DecodingKind::kBeamSearch;

bool IsGreedy(const DecodingParams& params) {
  return params.kind == kMultinomial && params.warp.temperature == 0;
}

// At temperature 0 there is no noise to replay, so the draft ranks its guesses by score.
std::unique_ptr<Drafter> DraftPfGumbel(const DecodingParams& params, const DraftState& state,
                                       int width) {
  if (IsGreedy(params)) return MakeSearchDrafter(params, state, width, /*look_ahead=*/false);
  return MakePfGumbelDrafter(params, state, width);
}

LevelRule::Kind PfGumbelRule(const DecodingParams& params) {
  return IsGreedy(params) ? LevelRule::Kind::kScore : LevelRule::Kind::kPicks;
}

LevelRule::Kind BeamSearchRule(const DecodingParams&) { return LevelRule::Kind::kScore; }

std::unique_ptr<Drafter> DraftBeamSearch(const DecodingParams& params, const DraftState& state,
                                         int width) {
  return MakeSearchDrafter(params, state, width, /*look_ahead=*/false);
}

std::unique_ptr<Drafter> DraftHierarchicalGumbel(const DecodingParams& params,
                                                 const DraftState& state, int width) {
  return MakeSearchDrafter(params, state, width, /*look_ahead=*/true);
}

// Greedy decoding is the verifier of 5.7 at width 1 on one-hot rows: the argmax chain.
std::unique_ptr<BeamDecoder> DecodeCertified(const DecodingParams& params) {
  if (params.kind == kMultinomial) return MakePfGumbelDecoder(params);
  return MakeSearchDecoder(params, /*certified=*/true);
}

// A decoder with a rule for the nodes of a draft tree and the law of their children (4.6).
template <NodeRule rule, ChildLaw law>
MethodRow DraftedTree(absl::string_view name, absl::string_view source) {
  return {.name = name,
          .serves = {kMultinomial},
          .law = "multinomial sampling (3.1)",
          .lossless = true,
          .form = DraftForm::kTree,
          .ships = law == ChildLaw::kMostLikely ? "tree" : "tree and proposals",
          .options = {"draft_tree"},
          .source = source,
          .make_decoder = MakeTreeDecoder<rule, law>,
          .make_drafter = MakeTreeDrafter<law>,
          .check_forest = CheckTreeForest<law>,
          .most_children = law == ChildLaw::kSpecHub ? 2 : 0,
          .node_rule = rule,
          .child_law = law};
}

std::vector<MethodRow> MakeTable() {
  return {
      {.name = "pf_gumbel",
       .serves = {kMultinomial, kBeamSampling},
       .law = "that of the decoding (3.1, 3.3)",
       .lossless = true,
       .reproducible = true,
       .form = DraftForm::kLevels,
       .ships = "tree",
       .options = {"beam_duplicates"},
       .source = "5.7",
       .make_decoder = MakePfGumbelDecoder,
       .make_drafter = DraftPfGumbel,
       .level_rule = PfGumbelRule},
      {.name = "hg_wor",
       .serves = {kWithoutReplacement},
       .law = "beam sampling without replacement (3.4)",
       .lossless = true,
       .reproducible = true,
       .form = DraftForm::kLevels,
       .ships = "tree",
       .source = "5.8",
       .make_decoder = DecodeCertified,
       .make_drafter = DraftHierarchicalGumbel},
      {.name = "certified",
       .serves = {kBeamSearch, kMultinomial},
       .law = "the same tokens (3.2, 3.5)",
       .lossless = true,
       .reproducible = true,
       .form = DraftForm::kLevels,
       .ships = "tree",
       .source = "5.9",
       .make_decoder = DecodeCertified,
       .make_drafter = DraftBeamSearch,
       .greedy_only = true,
       .level_rule = BeamSearchRule},
      {.name = "gumbel_slots",
       .serves = {kBeamSampling, kWithoutReplacement},
       .law = "that of the decoding (3.3, 3.4) in any warp mode",
       .lossless = true,
       .reproducible = true,
       .joint_warps = true,
       .form = DraftForm::kLevels,
       .ships = "tree",
       .options = {"beam_duplicates"},
       .source = "5.6",
       .make_decoder = MakeGumbelSlotsDecoder,
       .make_drafter = MakeGumbelSlotsDrafter},
      {.name = "dsbd",
       .serves = {kBeamSampling},
       .law = "beam sampling with replacement (3.3)",
       .law_given = "fixed width",
       .lossless = true,
       .joint_warps = true,
       .form = DraftForm::kLevels,
       .ships = "tree and proposals",
       .options = {"width_threshold", "min_width", "beam_duplicates"},
       .source = "5.1, 5.2 rule E, 5.3",
       .make_decoder = MakeDsbdDecoder,
       .make_drafter = MakeDsbdDrafter,
       .check_forest = CheckDsbdForest},
      {.name = "dsbd_renormalise",
       .serves = {kBeamSampling},
       .law = "beam sampling with replacement (3.3)",
       .law_given = "fixed width",
       .lossless = true,
       .joint_warps = true,
       .form = DraftForm::kLevels,
       .ships = "tree and proposals",
       .options = {"width_threshold", "min_width", "beam_duplicates"},
       .source = "5.1, 5.2 rule N, 5.3",
       .make_decoder = MakeDsbdRenormaliseDecoder,
       .make_drafter = MakeDsbdDrafter,
       .check_forest = CheckDsbdForest},
      {.name = "single_kv",
       .serves = {kBeamSampling},
       .law = "lossy: one beam is kept between rounds, so that the law depends on the draft",
       .joint_warps = true,
       .form = DraftForm::kLevels,
       .ships = "tree and proposals",
       .options = {"width_threshold", "min_width", "beam_duplicates"},
       .source = "5.4, 5.2 rule E",
       .make_decoder = MakeSingleKvDecoder,
       .make_drafter = MakeDsbdDrafter,
       .check_forest = CheckDsbdForest},
      {.name = "wor_reuse",
       .serves = {kBeamSampling, kWithoutReplacement},
       .law = "that of the decoding (3.3, 3.4) in any warp mode",
       .lossless = true,
       .joint_warps = true,
       .form = DraftForm::kLevels,
       .ships = "tree and proposals",
       .options = {"beam_duplicates"},
       .source = "5.5",
       .make_decoder = MakeWorReuseDecoder,
       .make_drafter = MakeWorReuseDrafter,
       .check_forest = CheckWorReuseForest},
      {.name = "pf_rrs",
       .serves = {kBeamSampling, kMultinomial},
       .law = "that of the decoding (3.1, 3.3)",
       .lossless = true,
       .form = DraftForm::kLevels,
       .ships = "tree and proposals",
       .options = {"beam_duplicates"},
       .source = "5.7",
       .make_decoder = MakePfRrsDecoder,
       .make_drafter = MakePfRrsDrafter,
       .check_forest = CheckPfRrsForest},
      {.name = "mjsd",
       .serves = {kMultinomial},
       .law =
           "lossy: keeps drafts whose joint likelihood is above mjsd_threshold times the draft's",
       .form = DraftForm::kPath,
       .ships = "tree and proposals",
       .options = {"mjsd_threshold", "draft_beams"},
       .source = "6.2",
       .make_decoder = MakeMjsdDecoder,
       .make_drafter = MakeMjsdDrafter,
       .check_forest = CheckMjsdForest},
      {.name = "bild",
       .serves = {kMultinomial},
       .law = "lossy: keeps drafts up to the first of -log p above rollback_threshold",
       .form = DraftForm::kPath,
       .ships = "tree",
       .options = {"fallback_threshold", "rollback_threshold"},
       .source = "6.3",
       .make_decoder = MakeBildDecoder,
       .make_drafter = MakeBildDrafter},
      {.name = "mjgd",
       .serves = {kMultinomial},
       .law = "lossy: the likeliest joint_tokens tokens at once, no sampling",
       .form = DraftForm::kNone,
       .ships = "nothing",
       .options = {"joint_tokens", "draft_beams"},
       .source = "6.1",
       .make_decoder = MakeMjgdDecoder},
      {.name = "rejection",
       .serves = {kMultinomial},
       .law = "multinomial sampling (3.1)",
       .lossless = true,
       .form = DraftForm::kPath,
       .ships = "tree and proposals",
       .source = "4.1",
       .make_decoder = MakeTreeDecoder<VerifyRrsIid, ChildLaw::kIid>,
       .make_drafter = MakePathDrafter,
       .check_forest = CheckTreeForest<ChildLaw::kIid>},
      {.name = "block",
       .serves = {kMultinomial},
       .law = "multinomial sampling (3.1)",
       .lossless = true,
       .form = DraftForm::kPath,
       .ships = "tree and proposals",
       .source = "4.7",
       .make_decoder = MakeBlockDecoder,
       .make_drafter = MakePathDrafter,
       .check_forest = CheckPathForest},
      DraftedTree<VerifyRrsIid, ChildLaw::kIid>("recursive_rejection", "4.2 with replacement, 4.6"),
      DraftedTree<VerifyRrsWithoutReplacement, ChildLaw::kWithoutReplacement>(
          "recursive_rejection_wor", "4.2 without replacement, 4.6"),
      DraftedTree<SampleAndCheck, ChildLaw::kMostLikely>("sample_and_check",
                                                         "4.2 with deterministic drafts, 4.6"),
      DraftedTree<VerifyKSeq, ChildLaw::kIid>("k_seq", "4.3, 4.6"),
      {.name = "spectr",
       .serves = {kMultinomial},
       .law = "multinomial sampling (3.1)",
       .lossless = true,
       .form = DraftForm::kLevels,
       .ships = "tree and proposals",
       .source = "4.3, iid sequences",
       .make_decoder = MakeTreeDecoder<VerifyKSeq, ChildLaw::kIid>,
       .make_drafter = MakeSequencesDrafter,
       .check_forest = CheckTreeForest<ChildLaw::kIid>,
       .node_rule = VerifyKSeq,
       .child_law = ChildLaw::kIid},
      DraftedTree<VerifyGreedy, ChildLaw::kGreedy>("greedy_multi_draft", "4.4, 4.6"),
      DraftedTree<VerifyGreedy, ChildLaw::kSpecHub>("spechub", "4.5, 4.6"),
      DraftedTree<VerifyLuceOt, ChildLaw::kIid>("luce_ot", "4.8, 4.6"),
  };
}

bool Serves(const MethodRow& row, sampling::DecodingKind kind) {
  return std::find(row.serves.begin(), row.serves.end(), kind) != row.serves.end();
}

}  // namespace

bool MethodRow::reads(absl::string_view option) const {
  return std::find(options.begin(), options.end(), option) != options.end();
}

absl::Span<const MethodRow> Methods() {
  static const auto* rows = new std::vector<MethodRow>(MakeTable());
  return *rows;
}

const MethodRow* FindMethod(absl::string_view name) {
  for (const MethodRow& row : Methods()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

absl::StatusOr<const MethodRow*> FirstMethod(const DecodingParams& params) {
  for (const MethodRow& row : Methods()) {
    if (Serves(row, params.kind) && (row.joint_warps || !sampling::IsJoint(params.warp.mode)) &&
        (row.reads("beam_duplicates") || !params.set_semantics)) {
      return &row;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("warp_mode: no method serves '", sampling::WarpModeName(params.warp.mode),
                   "' with decoding '", sampling::DecodingKindName(params.kind), "'",
                   params.set_semantics ? " and beam_duplicates 'once'" : ""));
}

absl::Status CheckServes(const MethodRow& row, const DecodingParams& params) {
  const auto refuse = [&row](const auto&... why) {
    return absl::InvalidArgumentError(
        absl::StrCat("speculative.method: '", row.name, "' ", why...));
  };
  if (!Serves(row, params.kind)) {
    return refuse("does not serve decoding '", sampling::DecodingKindName(params.kind), "'");
  }
  if (sampling::IsJoint(params.warp.mode) && !row.joint_warps) {
    return refuse("does not serve warp_mode '", sampling::WarpModeName(params.warp.mode), "'");
  }
  if (params.set_semantics && !row.reads("beam_duplicates")) {
    return refuse("does not serve beam_duplicates 'once'");
  }
  if (row.greedy_only && params.kind == kMultinomial && !IsGreedy(params)) {
    return refuse("serves multinomial only at temperature 0 (greedy), got temperature ",
                  params.warp.temperature);
  }
  return absl::OkStatus();
}

absl::StatusOr<const MethodRow*> ResolveMethod(const DecodingParams& params) {
  if (params.method == nullptr) return FirstMethod(params);
  COPPICE_RETURN_IF_ERROR(CheckServes(*params.method, params));
  return params.method;
}

absl::string_view MethodName(const DecodingParams& params) {
  if (params.plain) return "none";
  return params.method == nullptr ? "auto" : params.method->name;
}

}  // namespace coppice::decoding
