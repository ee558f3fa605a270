#include "decoding/method.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "decoding/beam_decoder.h"
#include "decoding/drafter.h"
#include "decoding/layer/beam_recursive_rejection.h"
#include "decoding/layer/dsbd.h"
#include "decoding/layer/dsbd_single_kv.h"
#include "decoding/layer/dsbd_wor.h"
#include "decoding/lossy/bild.h"
#include "decoding/lossy/mjgd.h"
#include "decoding/lossy/mjsd.h"
#include "decoding/seeded/gumbel_coupling.h"
#include "decoding/seeded/joint_gumbel_coupling.h"
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
  return params.kind == kMultinomial && params.sampling.temperature == 0;
}

// At temperature 0 there is no noise to replay, so the draft ranks its guesses by score.
std::unique_ptr<Drafter> DraftGumbelCoupling(const DecodingParams& params, const DraftState& state,
                                             int width) {
  if (IsGreedy(params)) return MakeSearchDrafter(params, state, width, /*look_ahead=*/false);
  return MakeGumbelCouplingDrafter(params, state, width);
}

DeviceDrafting::Kind GumbelCouplingDrafting(const DecodingParams& params) {
  return IsGreedy(params) ? DeviceDrafting::Kind::kScore : DeviceDrafting::Kind::kPicks;
}

DeviceDrafting::Kind BeamSearchDrafting(const DecodingParams&) {
  return DeviceDrafting::Kind::kScore;
}

std::unique_ptr<Drafter> DraftBeamSearch(const DecodingParams& params, const DraftState& state,
                                         int width) {
  if (params.num_beam_groups > 1) return MakeGroupSearchDrafter(params, state, width);
  return MakeSearchDrafter(params, state, width, /*look_ahead=*/false);
}

std::unique_ptr<Drafter> DraftHierarchicalGumbel(const DecodingParams& params,
                                                 const DraftState& state, int width) {
  return MakeSearchDrafter(params, state, width, /*look_ahead=*/true);
}

// Greedy decoding is the verifier of 5.7 at width 1 on one-hot rows: the argmax chain.
std::unique_ptr<BeamDecoder> DecodeCertified(const DecodingParams& params) {
  if (params.kind == kMultinomial) return MakeGumbelCouplingDecoder(params);
  return MakeSearchDecoder(params, /*certified=*/true);
}

// A decoder with a rule for the nodes of a draft tree and the distribution of their children (4.6).
template <NodeRule rule, ChildSampling sampling>
MethodRow DraftedTree(absl::string_view name, absl::string_view source) {
  return {.name = name,
          .serves = {kMultinomial},
          .distribution = "multinomial sampling (3.1)",
          .lossless = true,
          .form = DraftForm::kTree,
          .sends = sampling == ChildSampling::kMostLikely ? "tree" : "tree and proposals",
          .options = {"draft_tree"},
          .source = source,
          .make_decoder = MakeTreeDecoder<rule, sampling>,
          .make_drafter = MakeTreeDrafter<sampling>,
          .check_forest = CheckTreeForest<sampling>,
          .most_children = sampling == ChildSampling::kSpecHub ? 2 : 0,
          .node_rule = rule,
          .child_sampling = sampling};
}

std::vector<MethodRow> MakeTable() {
  return {
      {.name = "gumbel_coupling",
       .serves = {kMultinomial, kBeamSampling},
       .distribution = "that of the decoding (3.1, 3.3)",
       .lossless = true,
       .reproducible = true,
       .form = DraftForm::kLevels,
       .sends = "tree",
       .options = {"beam_duplicates"},
       .source = "5.7",
       .make_decoder = MakeGumbelCouplingDecoder,
       .make_drafter = DraftGumbelCoupling,
       .device_drafting = GumbelCouplingDrafting},
      {.name = "gumbel_top_k",
       .serves = {kWithoutReplacement},
       .distribution = "beam sampling without replacement (3.4)",
       .lossless = true,
       .reproducible = true,
       .scheduled_width = true,
       .form = DraftForm::kLevels,
       .sends = "tree",
       .source = "5.8",
       .make_decoder = DecodeCertified,
       .make_drafter = DraftHierarchicalGumbel},
      {.name = "speculative_beam_search",
       .serves = {kBeamSearch, kMultinomial},
       .distribution = "the same tokens (3.2, 3.5)",
       .lossless = true,
       .reproducible = true,
       .scheduled_width = true,
       .form = DraftForm::kLevels,
       .sends = "tree",
       .source = "5.9",
       .make_decoder = DecodeCertified,
       .make_drafter = DraftBeamSearch,
       .greedy_only = true,
       .device_drafting = BeamSearchDrafting},
      {.name = "joint_gumbel_coupling",
       .serves = {kBeamSampling, kWithoutReplacement},
       .distribution = "that of the decoding (3.3, 3.4) in any sampling scope",
       .lossless = true,
       .reproducible = true,
       .joint_sampling = true,
       .form = DraftForm::kLevels,
       .sends = "tree",
       .options = {"beam_duplicates"},
       .source = "5.6",
       .make_decoder = MakeJointGumbelCouplingDecoder,
       .make_drafter = MakeJointGumbelCouplingDrafter},
      {.name = "dsbd",
       .serves = {kBeamSampling},
       .distribution = "beam sampling with replacement (3.3)",
       .distribution_given = "fixed width",
       .lossless = true,
       .joint_sampling = true,
       .form = DraftForm::kLevels,
       .sends = "tree and proposals",
       .options = {"width_threshold", "min_width", "beam_duplicates"},
       .source = "5.1, 5.2 rule E, 5.3",
       .make_decoder = MakeDsbdDecoder,
       .make_drafter = MakeDsbdDrafter,
       .check_forest = CheckDsbdForest},
      {.name = "dsbd_renormalise",
       .serves = {kBeamSampling},
       .distribution = "beam sampling with replacement (3.3)",
       .distribution_given = "fixed width",
       .lossless = true,
       .joint_sampling = true,
       .form = DraftForm::kLevels,
       .sends = "tree and proposals",
       .options = {"width_threshold", "min_width", "beam_duplicates"},
       .source = "5.1, 5.2 rule N, 5.3",
       .make_decoder = MakeDsbdRenormaliseDecoder,
       .make_drafter = MakeDsbdDrafter,
       .check_forest = CheckDsbdForest},
      {.name = "dsbd_single_kv",
       .serves = {kBeamSampling},
       .distribution =
           "lossy: one beam is kept between rounds, so that the distribution depends on the draft",
       .joint_sampling = true,
       .form = DraftForm::kLevels,
       .sends = "tree and proposals",
       .options = {"width_threshold", "min_width", "beam_duplicates"},
       .source = "5.4, 5.2 rule E",
       .make_decoder = MakeDsbdSingleKvDecoder,
       .make_drafter = MakeDsbdDrafter,
       .check_forest = CheckDsbdForest},
      {.name = "dsbd_wor",
       .serves = {kBeamSampling, kWithoutReplacement},
       .distribution = "that of the decoding (3.3, 3.4) in any sampling scope",
       .lossless = true,
       .joint_sampling = true,
       .form = DraftForm::kLevels,
       .sends = "tree and proposals",
       .options = {"beam_duplicates"},
       .source = "5.5",
       .make_decoder = MakeDsbdWorDecoder,
       .make_drafter = MakeDsbdWorDrafter,
       .check_forest = CheckDsbdWorForest},
      {.name = "beam_recursive_rejection",
       .serves = {kBeamSampling, kMultinomial},
       .distribution = "that of the decoding (3.1, 3.3)",
       .lossless = true,
       .form = DraftForm::kLevels,
       .sends = "tree and proposals",
       .options = {"beam_duplicates"},
       .source = "5.7",
       .make_decoder = MakeBeamRecursiveRejectionDecoder,
       .make_drafter = MakeBeamRecursiveRejectionDrafter,
       .check_forest = CheckBeamRecursiveRejectionForest},
      {.name = "mjsd",
       .serves = {kMultinomial},
       .distribution =
           "lossy: keeps drafts whose joint likelihood is above mjsd_threshold times the draft's",
       .form = DraftForm::kPath,
       .sends = "tree and proposals",
       .options = {"mjsd_threshold", "draft_beams"},
       .source = "6.2",
       .make_decoder = MakeMjsdDecoder,
       .make_drafter = MakeMjsdDrafter,
       .check_forest = CheckMjsdForest},
      {.name = "bild",
       .serves = {kMultinomial},
       .distribution =
           "lossy: keeps the drafts before the first whose -log p is above rollback_threshold",
       .form = DraftForm::kPath,
       .sends = "tree",
       .options = {"fallback_threshold", "rollback_threshold"},
       .source = "6.3",
       .make_decoder = MakeBildDecoder,
       .make_drafter = MakeBildDrafter},
      {.name = "mjgd",
       .serves = {kMultinomial},
       .distribution = "lossy: the likeliest joint_tokens tokens at once, no sampling",
       .form = DraftForm::kNone,
       .sends = "nothing",
       .options = {"joint_tokens", "draft_beams"},
       .source = "6.1",
       .make_decoder = MakeMjgdDecoder},
      {.name = "rejection",
       .serves = {kMultinomial},
       .distribution = "multinomial sampling (3.1)",
       .lossless = true,
       .form = DraftForm::kPath,
       .sends = "tree and proposals",
       .source = "4.1",
       .make_decoder = MakeTreeDecoder<VerifyRrsIid, ChildSampling::kIid>,
       .make_drafter = MakePathDrafter,
       .check_forest = CheckTreeForest<ChildSampling::kIid>},
      {.name = "block_verification",
       .serves = {kMultinomial},
       .distribution = "multinomial sampling (3.1)",
       .lossless = true,
       .form = DraftForm::kPath,
       .sends = "tree and proposals",
       .source = "4.7",
       .make_decoder = MakeBlockDecoder,
       .make_drafter = MakePathDrafter,
       .check_forest = CheckPathForest},
      DraftedTree<VerifyRrsIid, ChildSampling::kIid>("recursive_rejection",
                                                     "4.2 with replacement, 4.6"),
      DraftedTree<VerifyRrsWithoutReplacement, ChildSampling::kWithoutReplacement>(
          "recursive_rejection_wor", "4.2 without replacement, 4.6"),
      DraftedTree<SampleAndCheck, ChildSampling::kMostLikely>("sample_and_check",
                                                              "4.2 with deterministic drafts, 4.6"),
      DraftedTree<VerifyKSeq, ChildSampling::kIid>("k_seq", "4.3, 4.6"),
      {.name = "spectr",
       .serves = {kMultinomial},
       .distribution = "multinomial sampling (3.1)",
       .lossless = true,
       .form = DraftForm::kLevels,
       .sends = "tree and proposals",
       .source = "4.3, iid sequences",
       .make_decoder = MakeTreeDecoder<VerifyKSeq, ChildSampling::kIid>,
       .make_drafter = MakeSequencesDrafter,
       .check_forest = CheckTreeForest<ChildSampling::kIid>,
       .node_rule = VerifyKSeq,
       .child_sampling = ChildSampling::kIid},
      DraftedTree<VerifyGreedy, ChildSampling::kGreedy>("greedy_multi_draft", "4.4, 4.6"),
      DraftedTree<VerifyGreedy, ChildSampling::kSpecHub>("spechub", "4.5, 4.6"),
      DraftedTree<VerifyLuceOt, ChildSampling::kIid>("luce_ot", "4.8, 4.6"),
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
    if (Serves(row, params.kind) &&
        (row.joint_sampling || !sampling::IsJoint(params.sampling.mode)) &&
        (row.reads("beam_duplicates") || !params.set_semantics)) {
      return &row;
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "sampling_scope: no method serves '", sampling::SamplingScopeName(params.sampling.mode),
      "' with decoding '", sampling::DecodingKindName(params.kind), "'",
      params.set_semantics ? " and beam_duplicates 'once'" : ""));
}

bool IsServed(sampling::DecodingKind kind, sampling::SamplingScope scope) {
  DecodingParams params;
  params.kind = kind;
  params.sampling.mode = scope;
  return FirstMethod(params).ok();
}

absl::Status CheckServes(const MethodRow& row, const DecodingParams& params) {
  const auto refuse = [&row](const auto&... why) {
    return absl::InvalidArgumentError(
        absl::StrCat("speculative.method: '", row.name, "' ", why...));
  };
  if (!Serves(row, params.kind)) {
    return refuse("does not serve decoding '", sampling::DecodingKindName(params.kind), "'");
  }
  if (sampling::IsJoint(params.sampling.mode) && !row.joint_sampling) {
    return refuse("does not serve sampling_scope '",
                  sampling::SamplingScopeName(params.sampling.mode), "'");
  }
  if (params.set_semantics && !row.reads("beam_duplicates")) {
    return refuse("does not serve beam_duplicates 'once'");
  }
  if (row.greedy_only && params.kind == kMultinomial && !IsGreedy(params)) {
    return refuse("serves multinomial only at temperature 0 (greedy), got temperature ",
                  params.sampling.temperature);
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
