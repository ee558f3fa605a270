#include "coordinator/message/call_arguments.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace coppice::coordinator {
namespace {

using Json = nlohmann::ordered_json;

bool OnlyStrings(const Json& values) {
  return values.is_array() && !values.empty() &&
         std::all_of(values.begin(), values.end(), [](const Json& v) { return v.is_string(); });
}

TextValue ValueOfSchema(const Json& schema) {
  if (!schema.is_object()) return TextValue::kOther;
  const auto type = schema.find("type");
  if (type == schema.end()) {
    const auto choices = schema.find("enum");
    return choices != schema.end() && OnlyStrings(*choices) ? TextValue::kString
                                                            : TextValue::kOther;
  }
  if (*type == "string") return TextValue::kString;
  if (!type->is_array() || std::find(type->begin(), type->end(), "string") == type->end())
    return TextValue::kOther;
  return type->size() == 1 ? TextValue::kString : TextValue::kMixed;
}

}  // namespace

Took JsonValueReader::Read(char c) {
  if (string_) {
    if (escape_)
      escape_ = false;
    else if (c == '\\')
      escape_ = true;
    else if (c == '"')
      string_ = false;
    return string_ || depth_ > 0 ? Took::kTaken : Took::kLast;
  }
  if (scalar_) {
    return absl::StrContains(",:{}[]\" \t\r\n", c) ? Took::kNone : Took::kTaken;
  }
  if (c == '"') {
    string_ = true;
  } else if (c == '{' || c == '[') {
    ++depth_;
  } else if (c == '}' || c == ']') {
    if (depth_ == 0) return Took::kNone;
    if (--depth_ == 0) return Took::kLast;
  } else if (depth_ == 0) {
    if (absl::StrContains(",: \t\r\n", c)) return Took::kNone;
    scalar_ = true;
  }
  return Took::kTaken;
}

void AppendToJsonString(absl::string_view text, std::string* json) {
  constexpr absl::string_view kNames = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
  for (const char c : text) {
    const size_t name = kNames.find(c);
    if (name != absl::string_view::npos)
      absl::StrAppend(json, "\\", kLetters.substr(name, 1));
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      absl::StrAppend(json, "\\u", absl::Hex(c, absl::kZeroPad4));
    else
      json->push_back(c);
  }
}

absl::flat_hash_map<std::string, TextValue> TextValues(const Tool& tool) {
  absl::flat_hash_map<std::string, TextValue> values;
  const Json schema = Json::parse(tool.parameters, nullptr, /*allow_exceptions=*/false);
  if (!schema.is_object()) return values;
  const auto properties = schema.find("properties");
  if (properties == schema.end() || !properties->is_object()) return values;
  for (const auto& [key, property] : properties->items()) values[key] = ValueOfSchema(property);
  return values;
}

std::string TextAsJson(absl::string_view text, TextValue value) {
  const absl::string_view bare = absl::StripAsciiWhitespace(text);
  const bool structured = !bare.empty() && absl::StrContains("{[", bare[0]);
  if (value == TextValue::kOther ||
      (value == TextValue::kMixed && (structured || bare == "null"))) {
    if (Json::accept(bare)) return std::string(bare);
    if (bare == "True") return "true";
    if (bare == "False") return "false";
    if (bare == "None") return "null";
  }
  std::string json = "\"";
  AppendToJsonString(text, &json);
  json += '"';
  return json;
}

}  // namespace coppice::coordinator
