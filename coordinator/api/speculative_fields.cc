#include "coordinator/api/speculative_fields.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "coordinator/api/decoding_rules.h"
#include "coordinator/api/parameter_fields.h"
#include "coordinator/api/renamed.h"
#include "decoding/method.h"
#include "decoding/topology.h"

namespace coppice::coordinator {
namespace {

constexpr char kAuto[] = "auto";  // the first method that serves the rest of the request

std::string KnownMethods() {
  std::string known = kAuto;
  for (const decoding::MethodRow& row : decoding::Methods())
    absl::StrAppend(&known, ", ", row.name);
  return known;
}

// Reads a static tree and checks it against the limits of draft_width and draft_depth. "" = auto.
std::string ReadTree(const ApiLimits& limits, JsonFields* fields) {
  const std::string text = fields->String({"draft_tree"}).value_or("");
  const absl::StatusOr<decoding::Topology> tree = decoding::ParseTopology(text);
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

// Checks the methods that need the client's consent. The method of the parameters must be resolved.
void CheckConsent(const decoding::DecodingParams& params, bool allow_lossy, JsonFields* fields) {
  if (allow_lossy) return;
  if (params.width_threshold > 0)
    fields->Fail(kUnsupportedCombination, "width_threshold",
                 "is not lossless and needs allow_lossy: true");
  if (!params.method->lossless) {
    fields->Fail(kUnsupportedCombination, "method",
                 absl::StrCat(params.method->name, " is not lossless and needs allow_lossy: true"));
  }
}

void ReadObject(const nlohmann::json& value, const ApiLimits& limits, JsonFields* outer,
                GenerateRequest* request) {
  JsonFields fields(value, "speculative", outer->ignored());
  decoding::DecodingParams& params = request->params;
  const std::string method = fields.String({"method"}).value_or(kAuto);
  params.method = decoding::FindMethod(method);
  if (method != kAuto && params.method == nullptr) {
    const absl::string_view new_name = RenamedMethod(method);
    fields.Fail("invalid_value", "method",
                new_name.empty() ? absl::StrCat("must be one of ", KnownMethods())
                                 : absl::StrCat(method, " is now called ", new_name));
  }
  GivenParameters given;
  ReadParameters("speculative", limits, /*vocab_size=*/0, &fields, &params, &given);
  params.draft_tree = ReadTree(limits, &fields);
  const bool allow_lossy = fields.Bool({"allow_lossy"}).value_or(false);
  RefuseRenamed(&fields);
  fields.IgnoreUnknown();
  if (const auto resolved = decoding::ResolveMethod(params); resolved.ok()) {
    params.method = *resolved;
    RefuseViolations(*request, "speculative", &fields);
    CheckConsent(params, allow_lossy, &fields);
  } else {
    fields.Fail(kUnsupportedCombination, "method",
                absl::StrCat(method, " cannot be combined with decoding ",
                             sampling::DecodingKindName(params.kind), ": ",
                             std::string(resolved.status().message())));
  }
  if (fields.error()) outer->set_error(*fields.error());
}

}  // namespace

void ApplySpeculative(const ApiLimits& limits, JsonFields* fields, GenerateRequest* request) {
  const nlohmann::json* value = fields->Find({"speculative"});
  if (value == nullptr || *value == true || *value == kAuto || *value == false) {
    request->params.plain = value != nullptr && *value == false;
    const absl::StatusOr<const decoding::MethodRow*> first = decoding::FirstMethod(request->params);
    if (first.ok()) {
      request->params.method = *first;
    } else {  // if no method serves a single field, that field was already refused by name
      fields->Fail(kUnsupportedCombination, "speculative", std::string(first.status().message()));
    }
  } else if (value->is_object()) {
    ReadObject(*value, limits, fields, request);
  } else if (value->is_string()) {
    fields->Fail("invalid_value", "speculative", "must be true, false, \"auto\" or an object");
  } else {
    fields->Fail("invalid_type", "speculative", "must be true, false, \"auto\" or an object");
  }
}

}  // namespace coppice::coordinator
