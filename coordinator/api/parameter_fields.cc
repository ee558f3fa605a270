#include "coordinator/api/parameter_fields.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/api/api.h"

namespace coppice::coordinator {
namespace {

using Json = nlohmann::ordered_json;

// The range that a request may use.
decoding::ParameterRange ServedRange(const decoding::ParameterRow& row, const ApiLimits& limits,
                                     double vocabulary, double beam_width) {
  decoding::ParameterRange range = row.served_range();
  if (row.zero_word != nullptr) range.low = 1;
  switch (row.limit) {
    case decoding::ParameterLimit::kNone:
      break;
    case decoding::ParameterLimit::kMaxBeamWidth:
      range.high = limits.max_beam_width;
      break;
    case decoding::ParameterLimit::kMaxDraftWidth:
      range.high = limits.max_draft_width;
      break;
    case decoding::ParameterLimit::kMaxDraftDepth:
      range.high = limits.max_draft_depth;
      break;
    case decoding::ParameterLimit::kVocabulary:
      range.high = vocabulary;
      break;
    case decoding::ParameterLimit::kBeamWidth:
      range.high = std::max(1.0, beam_width);
      break;
  }
  return range;
}

std::optional<decoding::ParameterValue> ReadInteger(const decoding::ParameterRow& row,
                                                    const decoding::ParameterRange& range,
                                                    JsonFields* fields) {
  const auto low = static_cast<int64_t>(range.low), high = static_cast<int64_t>(range.high);
  if (row.zero_word != nullptr) {
    const nlohmann::json* value = fields->Find(row.fields);
    if (value != nullptr && value->is_string()) {
      if (*value != row.zero_word) {
        fields->Fail(
            "invalid_value", row.field(),
            absl::StrCat("must be \"", row.zero_word, "\" or between ", low, " and ", high));
      }
      return std::nullopt;
    }
  }
  const std::optional<int64_t> value = fields->Integer(row.fields, low, high);
  if (!value) return std::nullopt;
  return std::max(*value, static_cast<int64_t>(row.range.low));  // for example top_k -1 becomes 0
}

std::optional<decoding::ParameterValue> ReadNumber(const decoding::ParameterRow& row,
                                                   const decoding::ParameterRange& range,
                                                   JsonFields* fields) {
  const std::optional<double> value =
      fields->Number(row.fields, range.or_zero ? 0 : range.low, range.high, range.open_low);
  if (!value) return std::nullopt;
  if (!range.Has(*value)) {
    fields->Fail("invalid_value", row.field(),
                 absl::StrCat("must be 0, or at least ", range.low, ", got ", *value));
    return std::nullopt;
  }
  return *value;
}

std::optional<decoding::ParameterValue> ReadValue(const decoding::ParameterRow& row,
                                                  const decoding::ParameterRange& range,
                                                  JsonFields* fields) {
  switch (row.member.type) {
    case decoding::ParameterType::kInteger:
      return ReadInteger(row, range, fields);
    case decoding::ParameterType::kNumber:
      return ReadNumber(row, range, fields);
    case decoding::ParameterType::kFlag:
      if (const std::optional<bool> flag = fields->Bool(row.fields)) return *flag;
      return std::nullopt;
    case decoding::ParameterType::kSeed:
    case decoding::ParameterType::kStructured:
      break;
  }
  return std::nullopt;
}

const char* ReadByName(decoding::ReadBy read_by) {
  switch (read_by) {
    case decoding::ReadBy::kEvery:
      return "every";
    case decoding::ReadBy::kSampling:
      return "sampling";
    case decoding::ReadBy::kRows:
      return "row_sampling";
    case decoding::ReadBy::kBeams:
      return "beams";
    case decoding::ReadBy::kDrafting:
      return "drafting";
    case decoding::ReadBy::kOption:
      break;
  }
  return "option";
}

Json Scalar(const decoding::ParameterValue& value) {
  return std::visit([](auto scalar) { return Json(scalar); }, value);
}

// An end of a range: an integer if the parameter is one, null if there is no bound.
Json End(const decoding::ParameterRow& row, double end) {
  if (std::fabs(end) >= std::numeric_limits<int>::max()) return Json();
  return row.member.type == decoding::ParameterType::kInteger ? Json(static_cast<int64_t>(end))
                                                              : Json(end);
}

Json ParameterJson(const decoding::ParameterRow& row, const ApiLimits& limits) {
  Json json;
  json["name"] = row.field();
  json["aliases"] = std::vector<std::string>(row.fields.begin() + 1, row.fields.end());
  json["object"] = row.object;
  json["read_by"] = ReadByName(row.read_by);
  if (row.own_syntax != nullptr) {
    json["values"] = row.own_syntax;
    json["default"] = row.own_default;
    return json;
  }
  json["type"] = std::string(decoding::ParameterTypeName(row.member.type));
  if (row.member.type != decoding::ParameterType::kFlag) {
    const double open = std::numeric_limits<double>::infinity();
    const decoding::ParameterRange range = ServedRange(row, limits, open, open);
    json["minimum"] = End(row, range.low);
    json["exclusive_minimum"] = range.open_low;
    json["or_zero"] = range.or_zero;
    json["maximum"] = End(row, range.high);
  }
  json["default"] = row.own_default != nullptr ? Json(row.own_default)
                    : row.zero_word != nullptr ? Json(row.zero_word)
                                               : Scalar(row.member.get(decoding::DecodingParams()));
  return json;
}

}  // namespace

void ReadParameters(absl::string_view object, const ApiLimits& limits, int vocab_size,
                    JsonFields* fields, decoding::DecodingParams* params, GivenParameters* given,
                    absl::Span<const absl::string_view> except) {
  const int beam_width = params->beam_width;
  for (const decoding::ParameterRow& row : decoding::Parameters()) {
    if (row.own_syntax != nullptr || object != row.object) continue;
    if (std::find(except.begin(), except.end(), row.name) != except.end()) continue;
    const decoding::ParameterRange range = ServedRange(row, limits, vocab_size, beam_width);
    const std::optional<decoding::ParameterValue> value = ReadValue(row, range, fields);
    if (!value) continue;
    given->Add(row);
    const absl::Status status = decoding::SetParameter(row, *value, params);
    if (!status.ok()) fields->Fail("invalid_value", row.field(), std::string(status.message()));
  }
}

nlohmann::ordered_json ParametersJson(const ApiLimits& limits) {
  Json json = Json::array();
  for (const decoding::ParameterRow& row : decoding::Parameters())
    json.push_back(ParameterJson(row, limits));
  return json;
}

}  // namespace coppice::coordinator
