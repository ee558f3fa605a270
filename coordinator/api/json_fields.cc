#include "coordinator/api/json_fields.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace coppice::coordinator {
namespace {

// The depth of nested brackets outside strings. It is checked before parsing, so deep nesting uses
// no stack.
int Depth(const std::string& text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

std::string Shown(double value) { return absl::StrCat(value); }

}  // namespace

std::optional<ApiError> ParseJsonObject(const std::string& text, int max_depth,
                                        nlohmann::json* object) {
  const auto invalid = [](std::string message) {
    return ApiError{400, "invalid_json", std::move(message)};
  };
  if (Depth(text) > max_depth)
    return invalid(absl::StrCat("the body is nested deeper than ", max_depth, " levels"));
  *object = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (object->is_discarded()) return invalid("the body is not valid JSON in UTF-8");
  if (!object->is_object()) return invalid("the body must be one JSON object");
  return std::nullopt;
}

bool IsEmptyValue(const nlohmann::json& value) {
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.empty();  // null, a list or an object; numbers and booleans are not
}

bool AllOf(const nlohmann::json& list, bool (nlohmann::json::*is)() const noexcept) {
  return std::all_of(list.begin(), list.end(),
                     [is](const nlohmann::json& entry) { return (entry.*is)(); });
}

std::optional<int64_t> AsInteger(const nlohmann::json& value) {
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (number != std::floor(number) || std::fabs(number) > 9.007199254740992e15) return std::nullopt;
  return static_cast<int64_t>(number);
}

std::string JsonFields::Path(absl::string_view name) const {
  return path_.empty() ? std::string(name) : absl::StrCat(path_, ".", name);
}

void JsonFields::Fail(const char* code, absl::string_view name, absl::string_view what) {
  if (!error_) error_ = ApiError{400, code, absl::StrCat(Path(name), " ", what), Path(name)};
}

void JsonFields::set_error(ApiError error) {
  if (!error_) error_ = std::move(error);
}

std::string JsonFields::Spelling(Names names) const {
  for (const char* name : names) {
    const auto it = object_.find(name);
    if (it != object_.end() && !IsEmptyValue(*it)) return name;
  }
  return *names.begin();
}

const nlohmann::json* JsonFields::FindUnless(Names names, bool (*absent)(const nlohmann::json&)) {
  const nlohmann::json* found = nullptr;
  std::string first;
  for (const char* name : names) {
    known_.insert(name);
    const auto it = object_.find(name);
    if (it == object_.end() || absent(*it)) continue;
    if (found == nullptr) {
      found = &*it;
      first = name;
    } else if (*found != *it) {
      Fail("conflicting_fields", first,
           absl::StrCat("and ", Path(name), " mean the same but differ"));
    }
  }
  return found;
}

const nlohmann::json* JsonFields::Find(Names names) { return FindUnless(names, IsEmptyValue); }

const nlohmann::json* JsonFields::FindGiven(Names names) {
  return FindUnless(names, [](const nlohmann::json& value) { return value.is_null(); });
}

const nlohmann::json* JsonFields::FindValue(Names names) {
  return FindUnless(
      names, [](const nlohmann::json& value) { return IsEmptyValue(value) || value == false; });
}

std::optional<int64_t> JsonFields::Integer(Names names, int64_t low, int64_t high) {
  const nlohmann::json* value = FindValue(names);
  if (value == nullptr) return std::nullopt;
  const std::string name = Spelling(names);
  if (!value->is_number()) {
    Fail("invalid_type", name, absl::StrCat("must be an integer, got ", value->type_name()));
    return std::nullopt;
  }
  const std::optional<int64_t> number = AsInteger(*value);
  if (!number || *number < low || *number > high) {
    const bool whole =
        number || value->is_number_integer() || std::fabs(value->get<double>()) > 9e15;
    Fail("invalid_value", name,
         absl::StrCat(whole ? "must be between " : "must be an integer between ", low, " and ",
                      high, ", got ", value->dump()));
    return std::nullopt;
  }
  return number;
}

std::optional<double> JsonFields::Number(Names names, double low, double high, bool open_low) {
  const nlohmann::json* value = FindValue(names);
  if (value == nullptr) return std::nullopt;
  const std::string name = Spelling(names);
  if (!value->is_number()) {
    Fail("invalid_type", name, absl::StrCat("must be a number, got ", value->type_name()));
    return std::nullopt;
  }
  const double number = value->get<double>();
  if (!(number >= low && number <= high) || (open_low && number == low)) {
    Fail("invalid_value", name,
         absl::StrCat("must be ", open_low ? "above " : "between ", Shown(low),
                      open_low ? " and at most " : " and ", Shown(high), ", got ", value->dump()));
    return std::nullopt;
  }
  return number;
}

std::optional<bool> JsonFields::Bool(Names names) {
  const nlohmann::json* value = Find(names);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) {
    Fail("invalid_type", Spelling(names),
         absl::StrCat("must be true or false, got ", value->type_name()));
    return std::nullopt;
  }
  return value->get<bool>();
}

std::optional<std::string> JsonFields::String(Names names) {
  const nlohmann::json* value = FindValue(names);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    Fail("invalid_type", Spelling(names),
         absl::StrCat("must be a string, got ", value->type_name()));
    return std::nullopt;
  }
  return value->get<std::string>();
}

std::vector<int64_t> JsonFields::Integers(Names names, int64_t low, int64_t high,
                                          size_t max_count) {
  std::vector<int64_t> numbers;
  const nlohmann::json* value = FindValue(names);
  if (value == nullptr) return numbers;
  const std::string name = Spelling(names);
  if (!value->is_array()) {
    Fail("invalid_type", name,
         absl::StrCat("must be a list of integers, got ", value->type_name()));
    return numbers;
  }
  if (value->size() > max_count) {
    Fail("invalid_value", name,
         absl::StrCat("has at most ", max_count, " entries, got ", value->size()));
    return numbers;
  }
  for (const nlohmann::json& entry : *value) {
    const std::optional<int64_t> number = AsInteger(entry);
    if (!entry.is_number()) {
      Fail("invalid_type", name, "must be a list of integers");
    } else if (!number || *number < low || *number > high) {
      Fail("invalid_value", name, absl::StrCat("has entries between ", low, " and ", high));
    } else {
      numbers.push_back(*number);
    }
  }
  return numbers;
}

const nlohmann::json* JsonFields::Object(const char* name) {
  const nlohmann::json* value = FindValue({name});
  if (value == nullptr || value->is_object()) return value;
  Fail("invalid_type", name, absl::StrCat("must be an object, got ", value->type_name()));
  return nullptr;
}

bool JsonFields::IsNeutral(const char* name, const nlohmann::json& neutral) {
  const nlohmann::json* value = Find({name});
  const auto is = [&](const nlohmann::json& other) {
    return std::find(neutral.begin(), neutral.end(), other) != neutral.end();
  };
  return value == nullptr || is(*value) || (*value == false && !is(true));
}

void JsonFields::Hint(const char* name, const nlohmann::json& neutral) {
  if (!IsNeutral(name, neutral)) IgnoreField(name, "unsupported_field", "is not supported");
}

void JsonFields::Neutral(const char* name, const nlohmann::json& neutral) {
  if (IsNeutral(name, neutral)) return;
  Fail("unsupported_field", name,
       neutral.empty() ? std::string("is not supported")
                       : absl::StrCat("is not supported, only its neutral value ",
                                      neutral.front().dump(), " is accepted"));
}

std::vector<std::string> JsonFields::Unknown() const {
  std::vector<std::string> unknown;
  for (const auto& item : object_.items()) {
    if (known_.count(item.key()) == 0 && !item.value().is_null())
      unknown.push_back(item.key().empty() ? R"("")" : item.key());
  }
  return unknown;
}

void JsonFields::IgnoreUnknown() {
  for (const std::string& name : Unknown())
    IgnoreField(name, "unknown_field", "is not a known field");
}

void JsonFields::IgnoreField(absl::string_view name, const char* code, absl::string_view why) {
  if (ignored_ == nullptr || !ignored_->Add(Path(name))) Fail(code, name, why);
}

}  // namespace coppice::coordinator
