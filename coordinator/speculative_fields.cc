#include "coordinator/speculative_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "decoding/method.h"

namespace coppice {
namespace {

constexpr char kCombination[] = "unsupported_combination";

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

void CheckMethod(const DecodingParams& params, bool allow_lossy, bool min_width_given,
                 JsonFields* fields) {
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
  if (params.width_threshold > 0 && !row->reads("width_threshold")) {
    fields->Fail(kCombination, "width_threshold",
                 absl::StrCat("has no effect with method ", row->name));
  }
  if (min_width_given && params.width_threshold == 0 && params.min_width != 1) {
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
  params.draft_width = WidthOrAuto(&fields, "draft_width", limits.max_draft_width);
  params.draft_depth = WidthOrAuto(&fields, "draft_depth", limits.max_draft_depth);
  params.draft_support = static_cast<int>(fields.Integer({"draft_support"}, 1, 1024).value_or(64));
  params.width_threshold = fields.Number({"width_threshold"}, 0, 1, /*open_low=*/true).value_or(0);
  const std::optional<int64_t> min_width =
      fields.Integer({"min_width"}, 1, std::max(1, params.beam_width));
  params.min_width = static_cast<int>(min_width.value_or(1));
  const bool allow_lossy = fields.Bool({"allow_lossy"}).value_or(false);
  for (const std::string& name : fields.Unknown()) {
    if (limits.ignore_unknown_fields) {
      request->ignored_fields.push_back(name);
    } else {
      fields.set_error({400, "unknown_field", absl::StrCat(name, " is not a known field"), name});
    }
  }
  if (!fields.error()) CheckMethod(params, allow_lossy, min_width.has_value(), &fields);
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
