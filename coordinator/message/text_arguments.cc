#include "coordinator/message/text_arguments.h"

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

Took TextArgumentsReader::Read(absl::string_view* text, bool whole, std::string* json) {
  while (true) {
    if (in_value_ && !ReadValue(text, whole, json)) return Took::kTaken;
    const Took took = ReadMarks(text, whole, json);
    if (took != Took::kNone) return took;
  }
}

// kNone: a value has begun.
Took TextArgumentsReader::ReadMarks(absl::string_view* text, bool whole, std::string* json) {
  const CallHead head = reader_.Argument(*text, whole);
  if (head.begins == Begins::kUnknown) return Took::kTaken;
  if (head.begins == Begins::kNothing) {
    const bool cut = whole && reader_.Argument(*text, false).begins == Begins::kUnknown;
    if (!cut) return Took::kWrong;
    *text = text->substr(text->size());  // a mark that the end of the answer has cut off is dropped
    return Took::kTaken;
  }
  if (head.begins == Begins::kClose) {
    absl::StrAppend(json, first_ ? "{}" : "}");
    text->remove_prefix(head.size);
    return Took::kLast;
  }
  absl::StrAppend(json, first_ ? "{\"" : ", \"");
  AppendToJsonString(head.key, json);
  absl::StrAppend(json, "\": ");
  const auto found = values_.find(head.key);
  value_ = found == values_.end() ? TextValue::kOther : found->second;
  if (value_ == TextValue::kString) *json += '"';
  first_ = false;
  in_value_ = true;
  text->remove_prefix(head.size);
  return Took::kNone;
}

void TextArgumentsReader::Write(absl::string_view text, std::string* json) {
  if (value_ == TextValue::kString)
    AppendToJsonString(text, json);
  else
    absl::StrAppend(&text_, text);
}

bool TextArgumentsReader::ReadValue(absl::string_view* text, bool whole, std::string* json) {
  absl::string_view after;
  const absl::string_view close = FirstChunk(format_.argument_close, &after);
  const bool drops_line = absl::StartsWith(format_.argument_close, "\n");
  for (; !text->empty(); text->remove_prefix(1)) {
    const absl::string_view have = text->substr(0, close.size());
    if (absl::StartsWith(close, have)) {
      if (have.size() < close.size() && !whole) return false;
      if (have.size() == close.size()) {
        text->remove_prefix(close.size());
        absl::StrAppend(json, value_ == TextValue::kString ? "\"" : TextAsJson(text_, value_));
        in_value_ = line_ = false;
        text_.clear();
        return true;
      }
    }
    if (line_) Write("\n", json);
    line_ = drops_line && text->front() == '\n';
    if (!line_) Write(text->substr(0, 1), json);
  }
  return false;
}

void TextArgumentsReader::Finish(std::string* json) { absl::StrAppend(json, text_); }

}  // namespace coppice::coordinator
