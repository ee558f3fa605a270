#include "coordinator/speculative_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "decoding/method.h"
#include "decoding/topology.h"

namespace coppice {
namespace {

constexpr char kCombination[] = "unsupported_combination";
constexpr int kMaxJointTokens = 16;
constexpr double kMaxNats = 1000;  // beyond it nothing is ever rolled back

std::string KnownMethods() {
  std::string known = "auto";
  for (const MethodRow& row : Methods()) absl::StrAppend(&known, ", ", row.name);
  return known;
}

// 0 = "auto" or absent.
int WidthOrAuto(JsonFields* fields, const char* name, int high) {
  const nlohmann::json* value = fields->Find({name});
  if (value != nullptr && value->is_string()) {
    if (*value != "auto")
      fields->Fail("invalid_value", name, absl::StrCat("must be \"auto\" or between 1 and ", high));
    return 0;
  }
  return static_cast<int>(fields->Integer({name}, 1, high).value_or(0));
}

// A static tree; it stays within the limits of draft_width and draft_depth. "" = auto.
std::string ReadTree(const ApiLimits& limits, JsonFields* fields) {
  const std::string text = fields->String({"draft_tree"}).value_or("");
  const absl::StatusOr<Topology> tree = ParseTopology(text);
  if (!tree.ok()) {
    fields->Fail("invalid_value", "draft_tree", std::string(tree.status().message()));
  } else if (tree->depth() > limits.max_draft_depth) {
    fields->Fail("invalid_value", "draft_tree",
                 absl::StrCat("has ", tree->depth(), " layers, at most ", limits.max_draft_depth,
                              " are served"));
  } else if (const int widest = tree->Widest(tree->depth()); widest > limits.max_draft_width) {
    fields->Fail("invalid_value", "draft_tree",
                 absl::StrCat("has a layer of ", widest, " nodes, at most ", limits.max_draft_width,
                              " are served"));
  }
  return text;
}

void ReadNumbers(const ApiLimits& limits, JsonFields* fields, DecodingParams* params) {
  const auto integer = [fields](const char* name, int high, int* value) {
    *value = static_cast<int>(fields->Integer({name}, 1, high).value_or(*value));
  };
  const auto share = [fields](const char* name, double* value) {
    *value = fields->Number({name}, 0, 1).value_or(*value);
  };
  params->draft_width = WidthOrAuto(fields, "draft_width", limits.max_draft_width);
  params->draft_depth = WidthOrAuto(fields, "draft_depth", limits.max_draft_depth);
  params->draft_tree = ReadTree(limits, fields);
  integer("draft_support", 1024, &params->draft_support);
  integer("draft_beams", limits.max_beam_width, &params->draft_beams);
  integer("joint_tokens", kMaxJointTokens, &params->joint_tokens);
  integer("min_width", std::max(1, params->beam_width), &params->min_width);
  params->width_threshold =
      fields->Number({"width_threshold"}, 0, 1, /*open_low=*/true).value_or(0);
  share("mjsd_threshold", &params->mjsd_threshold);
  share("fallback_threshold", &params->fallback_threshold);
  params->rollback_threshold =
      fields->Number({"rollback_threshold"}, 0, kMaxNats).value_or(params->rollback_threshold);
}

// Fields that only some methods read, and whether the request gives another value than the default.
std::vector<std::pair<const char*, bool>> Options(const DecodingParams& params) {
  const DecodingParams neutral;
  return {
      {"draft_tree", !params.draft_tree.empty()},
      {"draft_beams", params.draft_beams != neutral.draft_beams},
      {"mjsd_threshold", params.mjsd_threshold != neutral.mjsd_threshold},
      {"fallback_threshold", params.fallback_threshold != neutral.fallback_threshold},
      {"rollback_threshold", params.rollback_threshold != neutral.rollback_threshold},
      {"joint_tokens", params.joint_tokens != neutral.joint_tokens},
      {"width_threshold", params.width_threshold > 0},
      {"min_width", params.min_width != neutral.min_width},
  };
}

// The shape of the draft, as far as the method and the other fields leave it open.
void CheckShape(const MethodRow& row, const DecodingParams& params, JsonFields* fields) {
  const std::string method = absl::StrCat("method ", row.name);
  if (row.form == DraftForm::kNone) {
    const auto refuse = [&](const char* name, bool given) {
      if (given)
        fields->Fail(kCombination, name,
                     absl::StrCat("has no effect with ", method, ", which drafts nothing"));
    };
    refuse("draft_width", params.draft_width > 0);
    refuse("draft_depth", params.draft_depth > 0);
    refuse("draft_support", params.draft_support != DecodingParams().draft_support);
  }
  if (row.form == DraftForm::kPath && params.draft_width > 1) {
    fields->Fail(kCombination, "draft_width",
                 absl::StrCat("must be 1 with ", method, ", which drafts one path"));
  }
  if (row.most_children > 0 && row.form == DraftForm::kTree) {
    const char* field = params.draft_tree.empty() ? "draft_width" : "draft_tree";
    const auto tree = ParseTopology(params.draft_tree, std::max(1, params.draft_width));
    if (!tree.ok() || tree->MostChildren() > row.most_children) {
      fields->Fail(
          kCombination, field,
          absl::StrCat("gives a node more than the ", row.most_children, " children of ", method));
    }
  }
  if (params.draft_tree.empty()) return;
  for (const auto& [name, given] : {std::pair{"draft_width", params.draft_width > 0},
                                    std::pair{"draft_depth", params.draft_depth > 0}}) {
    if (given) fields->Fail(kCombination, name, "cannot be combined with draft_tree");
  }
}

void CheckMethod(const DecodingParams& params, bool allow_lossy, JsonFields* fields) {
  const absl::StatusOr<std::string> resolved = ResolveMethod(params.method, params);
  if (!resolved.ok()) {
    fields->Fail(kCombination, "method",
                 absl::StrCat(params.method, " cannot be combined with decoding ",
                              DecodingKindName(params.kind), ": ",
                              std::string(resolved.status().message())));
    return;
  }
  const MethodRow* row = FindMethod(*resolved);
  if (row == nullptr) return;
  for (const auto& [name, given] : Options(params)) {
    if (given && !row->reads(name))
      fields->Fail(kCombination, name, absl::StrCat("has no effect with method ", row->name));
  }
  CheckShape(*row, params, fields);
  if (params.width_threshold == 0 && params.min_width != 1) {
    fields->Fail(kCombination, "min_width", "has no effect without width_threshold");
  }
  if (params.width_threshold > 0 && !allow_lossy) {
    fields->Fail(kCombination, "width_threshold", "is not lossless and needs allow_lossy: true");
  }
  if (!row->lossless && !allow_lossy) {
    fields->Fail(kCombination, "method",
                 absl::StrCat(row->name, " is not lossless and needs allow_lossy: true"));
  }
}

void ReadObject(const nlohmann::json& value, const ApiLimits& limits, JsonFields* outer,
                GenerateRequest* request) {
  JsonFields fields(value, "speculative");
  DecodingParams& params = request->params;
  params.method = fields.String({"method"}).value_or("auto");
  if (params.method != "auto" && FindMethod(params.method) == nullptr) {
    fields.Fail("invalid_value", "method", absl::StrCat("must be one of ", KnownMethods()));
  }
  ReadNumbers(limits, &fields, &params);
  const bool allow_lossy = fields.Bool({"allow_lossy"}).value_or(false);
  for (const std::string& name : fields.Unknown()) {
    if (limits.ignore_unknown_fields) {
      request->ignored_fields.push_back(name);
    } else {
      fields.set_error({400, "unknown_field", absl::StrCat(name, " is not a known field"), name});
    }
  }
  if (!fields.error()) CheckMethod(params, allow_lossy, &fields);
  if (fields.error()) outer->set_error(*fields.error());
}

}  // namespace

void ApplySpeculative(const ApiLimits& limits, JsonFields* fields, GenerateRequest* request) {
  const nlohmann::json* value = fields->Find({"speculative"});
  if (value == nullptr || *value == true || *value == "auto") {
    request->params.method = "auto";
  } else if (*value == false) {
    request->params.method = "none";
  } else if (value->is_object()) {
    ReadObject(*value, limits, fields, request);
  } else if (value->is_string()) {
    fields->Fail("invalid_value", "speculative", "must be true, false, \"auto\" or an object");
  } else {
    fields->Fail("invalid_type", "speculative", "must be true, false, \"auto\" or an object");
  }
}

}  // namespace coppice
