#include "decoding/parameter_rules.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "decoding/method.h"
#include "decoding/parameter.h"
#include "decoding/topology.h"
#include "sampling/deterministic_math.h"

namespace coppice::decoding {
namespace {

using Code = Violation::Code;

// Rules of the output's distribution.
class DecodingRules {
 public:
  DecodingRules(const DecodingParams& params, std::vector<Violation>* violations)
      : params_(params), violations_(violations) {}

  void CheckAll() {
    CheckServed();
    CheckFormat();
    CheckDuplicates();
    CheckSchedule();
    CheckHypotheses();
    params_.kind == sampling::DecodingKind::kMultinomial ? CheckMultinomial() : CheckBeams();
    CheckGroups();
    CheckBias();
  }

 private:
  void CheckServed() {
    if (!IsServed(params_.kind)) {
      Add(Code::kNotServed, "decoding",
          absl::StrCat(sampling::DecodingKindName(params_.kind), " is not served"));
    } else if (!IsServed(params_.kind, params_.sampling.mode)) {
      Conflict("sampling_scope", absl::StrCat(Scope(), " is not served"));
    }
    if (!sampling::IsJoint(params_.sampling.mode)) return;
    // They would act on the flat scores of a layer, where a token has no path of its own.
    for (const ParameterRow& row : Parameters()) {
      if (row.read_by == ReadBy::kRows && !IsDefault(row, params_))
        Add(Code::kCombination, row.field(), AgainstScope());
    }
  }

  void CheckFormat() {
    if (params_.format_spec.kind == FormatSpec::Kind::kNone && params_.format == nullptr) return;
    if (sampling::IsJoint(params_.sampling.mode))
      Add(Code::kCombination, "format_spec", AgainstScope());
    if (params_.min_tokens > 0) {
      Add(Code::kCombination, "format_spec",
          "cannot be combined with min_tokens: a text may have to end before");
    }
  }

  // Set semantics (3.3): equal paths are one beam of weight 1.
  void CheckDuplicates() {
    if (!params_.set_semantics) return;
    if (params_.kind != sampling::DecodingKind::kBeamSampling) {
      Conflict("beam_duplicates", "only beams of beam_sampling can be equal");
    } else if (!FirstMethod(params_).ok()) {
      Conflict("beam_duplicates", "once is not served");
    }
  }

  void CheckMultinomial() {
    if (params_.beam_width > 1) Conflict("beam_width", "it has one path per sample");
    if (!params_.stop_when_full) NoEffect("early_stopping", "there are no beams to stop");
    if (!params_.refill) NoEffect("refill", "there are no beams to refill");
    if (params_.min_score > kEveryScore)
      Conflict("min_score", "its choices are samples, not ranked hypotheses");
  }

  void CheckBeams() {
    if (!params_.refill && params_.kind != sampling::DecodingKind::kBeamSampling)
      NoEffect("refill", "only beam_sampling refills");
    if (params_.kind == sampling::DecodingKind::kBeamSearch) {
      CheckSearch();
    } else if (params_.sampling.temperature == 0) {
      Conflict("temperature", "at 0 all slots would be one path");
    }
  }

  void CheckSearch() {
    for (const ParameterRow& row : Parameters()) {
      if (row.read_by == ReadBy::kSampling && row.scalar() && !IsNeutral(row, params_))
        Conflict(row.field(), "scores are raw log-probabilities");
    }
    if (params_.sampling.mode != sampling::SamplingScope::kRow)
      NoEffect("sampling_scope", "there are no sampling parameters");
  }

  // A width for each layer (8.3).
  void CheckSchedule() {
    const std::vector<int>& widths = params_.width_schedule;
    if (widths.empty()) return;
    if (const auto [least, most] = std::minmax_element(widths.begin(), widths.end());
        *least < 1 || *most != params_.beam_width) {
      Add(Code::kInvalidValue, "beam_width",
          absl::StrCat("is a list from ", *least, " to ", *most, ", of a largest width of ",
                       params_.beam_width));
    }
    if (params_.kind != sampling::DecodingKind::kBeamSearch &&
        params_.kind != sampling::DecodingKind::kBeamSamplingWithoutReplacement) {
      Conflict("beam_width", "only a decoding with distinct beams has a width for each layer");
      return;
    }
    const absl::StatusOr<const MethodRow*> row = ResolveMethod(params_);
    if (row.ok() && !(*row)->scheduled_width) {
      Add(Code::kCombination, "beam_width",
          absl::StrCat("is a list, which method ", (*row)->name, " does not serve"));
    }
  }

  void CheckHypotheses() {
    const bool listed = !params_.width_schedule.empty();
    const int last = listed ? params_.width_schedule.back() : params_.beam_width;
    if (params_.num_hypotheses <= last) return;
    Add(Code::kCombination, "n",
        absl::StrCat("is ", params_.num_hypotheses, " but must not exceed beam_width, which is ",
                     last, listed ? " in the last layer" : ""));
  }

  // Groups of beams (8.2).
  void CheckGroups() {
    if (params_.num_beam_groups == 1) {
      if (params_.diversity_penalty != 0) {
        Add(Code::kNoEffect, "diversity_penalty", "has no effect without num_beam_groups above 1");
      }
      return;
    }
    if (params_.kind != sampling::DecodingKind::kBeamSearch) {
      Conflict("num_beam_groups", "only beam_search has groups");
      return;
    }
    std::vector<int> widths = params_.width_schedule;
    if (widths.empty()) widths = {params_.beam_width};
    const auto odd = std::find_if(widths.begin(), widths.end(), [this](int width) {
      return width % params_.num_beam_groups != 0;
    });
    if (odd != widths.end()) {
      Add(Code::kCombination, "num_beam_groups",
          absl::StrCat("is ", params_.num_beam_groups, " but must divide beam_width, which is ",
                       *odd));
    }
    if (params_.diversity_penalty == 0) {
      Add(Code::kCombination, "diversity_penalty",
          "must be above 0 with num_beam_groups: all groups would be the same");
    }
  }

  void CheckBias() {
    for (const auto& [token, bias] : params_.sampling.logit_bias) {
      if (std::isnan(bias) || bias == sampling::kInfinity) {
        Add(Code::kInvalidValue, "logit_bias",
            absl::StrCat("of token ", token, " must be finite or -inf"));
      }
    }
  }

  absl::string_view Scope() const { return sampling::SamplingScopeName(params_.sampling.mode); }
  std::string AgainstScope() const {
    return absl::StrCat("cannot be combined with sampling_scope ", Scope(),
                        ", which processes the layer as a whole");
  }
  void Conflict(absl::string_view field, absl::string_view why) {
    Add(Code::kCombination, field, WithDecoding(why));
  }
  void NoEffect(absl::string_view field, absl::string_view why) {
    Add(Code::kNoEffect, field, WithDecoding(why));
  }
  std::string WithDecoding(absl::string_view why) const {
    return absl::StrCat("cannot be combined with decoding ",
                        sampling::DecodingKindName(params_.kind), ": ", why);
  }
  void Add(Code code, absl::string_view field, std::string reason) {
    violations_->push_back({code, "", std::string(field), std::move(reason)});
  }

  const DecodingParams& params_;
  std::vector<Violation>* const violations_;
};

// Rules of the drafts: what the method reads, and its shapes.
class DraftRules {
 public:
  DraftRules(const DecodingParams& params, const MethodRow& row, std::vector<Violation>* violations)
      : params_(params),
        row_(row),
        method_(absl::StrCat("method ", row.name)),
        violations_(violations) {}

  void CheckAll() {
    CheckEffects();
    CheckShape();
  }
  // Checks what a drafter cannot ignore. Called for every draft, so it is short.
  void CheckShape() {
    if (row_.form == DraftForm::kPath && params_.draft_width > 1) {
      Add(Code::kCombination, "draft_width",
          absl::StrCat("must be 1 with ", method_, ", which drafts one path"));
    }
    const int width = row_.form == DraftForm::kTree ? std::max(1, params_.draft_width) : 1;
    const absl::StatusOr<Topology> tree = ParseTopology(params_.draft_tree, width);
    if (!tree.ok()) {
      absl::string_view reason = tree.status().message();
      absl::ConsumePrefix(&reason, "draft_tree: ");
      Add(Code::kInvalidValue, "draft_tree", std::string(reason));
    } else if (row_.most_children > 0 && tree->MostChildren() > row_.most_children) {
      Add(Code::kCombination, params_.draft_tree.empty() ? "draft_width" : "draft_tree",
          absl::StrCat("gives a node more than the ", row_.most_children, " children of ",
                       method_));
    }
    if (row_.reads("min_width") && params_.min_width > params_.beam_width) {
      Add(Code::kInvalidValue, "min_width",
          absl::StrCat("must be between 1 and beam_width, got ", params_.min_width));
    }
  }

 private:
  void CheckEffects() {
    CheckOptions();
    if (row_.form == DraftForm::kNone) {
      for (const ParameterRow& drafting : Parameters()) {
        if (drafting.read_by != ReadBy::kDrafting || IsDefault(drafting, params_)) continue;
        NoEffect(drafting.field(),
                 absl::StrCat("has no effect with ", method_, ", which drafts nothing"));
      }
    }
    if (!params_.draft_tree.empty()) {
      if (params_.draft_width > 0) NoEffect("draft_width", "cannot be combined with draft_tree");
      if (params_.draft_depth > 0) NoEffect("draft_depth", "cannot be combined with draft_tree");
    }
    if (params_.width_threshold == 0 && params_.min_width != 1)
      NoEffect("min_width", "has no effect without width_threshold");
  }

  void CheckOptions() {
    const auto check = [&](const char* name, bool given) {
      if (given && !row_.reads(name)) NoEffect(name, absl::StrCat("has no effect with ", method_));
    };
    check("draft_tree", !params_.draft_tree.empty());
    for (const ParameterRow& option : Parameters()) {
      if (option.read_by == ReadBy::kOption && option.scalar() && option.own_syntax == nullptr)
        check(option.field(), !IsDefault(option, params_));
    }
  }

  void NoEffect(absl::string_view field, std::string reason) {
    Add(Code::kNoEffect, field, std::move(reason));
  }
  void Add(Code code, absl::string_view field, std::string reason) {
    violations_->push_back({code, "speculative", std::string(field), std::move(reason)});
  }

  const DecodingParams& params_;
  const MethodRow& row_;
  const std::string method_;
  std::vector<Violation>* const violations_;
};

absl::Status FirstFault(const std::vector<Violation>& violations) {
  for (const Violation& violation : violations) {
    if (violation.code == Code::kNoEffect) continue;
    return absl::InvalidArgumentError(absl::StrCat(violation.field, " ", violation.reason));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<Violation> Check(const DecodingParams& params) {
  std::vector<Violation> violations;
  DecodingRules(params, &violations).CheckAll();
  if (const absl::StatusOr<const MethodRow*> row = ResolveMethod(params); row.ok())
    DraftRules(params, **row, &violations).CheckAll();
  return violations;
}

absl::Status CheckRules(const DecodingParams& params) { return FirstFault(Check(params)); }

absl::Status CheckDraftRules(const DecodingParams& params, const MethodRow& row) {
  std::vector<Violation> violations;
  DraftRules(params, row, &violations).CheckShape();
  return FirstFault(violations);
}

}  // namespace coppice::decoding
