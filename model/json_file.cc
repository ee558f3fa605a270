#include "model/json_file.h"

#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "nlohmann/json.hpp"

namespace coppice::model {
namespace {

using Json = nlohmann::json;

// The value as written in the file, on one line, shortened if long.
std::string Shown(const Json& value) {
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

std::string IntegerRange(int64_t low, int64_t high) {
  return absl::StrCat("an integer from ", low, " to ", high);
}

bool IsIntegerIn(const Json& value, int64_t low, int64_t high) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    return false;
  if (!value.is_number_integer()) return false;
  const int64_t number = value.get<int64_t>();
  return number >= low && number <= high;
}

}  // namespace

JsonFile::JsonFile(std::string path, std::string prefix, std::shared_ptr<const Json> object)
    : path_(std::move(path)), prefix_(std::move(prefix)), object_(std::move(object)) {}

absl::StatusOr<JsonFile> JsonFile::ReadFile(const std::string& path, uint64_t most_bytes) {
  COPPICE_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path, most_bytes));
  return Parse(path, text);
}

absl::StatusOr<JsonFile> JsonFile::Parse(const std::string& path, const std::string& text) {
  auto object = std::make_shared<Json>(Json::parse(text, nullptr, /*allow_exceptions=*/false));
  if (object->is_discarded()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not valid JSON (", text.size(), " bytes)"));
  }
  if (!object->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected a JSON object, found ", object->type_name()));
  }
  return JsonFile(path, "", std::move(object));
}

const Json* JsonFile::Find(const std::string& name) const {
  const auto found = object_->find(name);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool JsonFile::Has(const std::string& name) const { return Find(name) != nullptr; }

bool JsonFile::IsNull(const std::string& name) const {
  const auto found = object_->find(name);
  return found != object_->end() && found->is_null();
}

absl::Status JsonFile::Error(const std::string& name, const std::string& what) const {
  return absl::InvalidArgumentError(
      absl::StrCat(path_, ": ", prefix_, absl::Utf8SafeCEscape(name), ": ", what));
}

absl::Status JsonFile::Mismatch(const std::string& name, const std::string& expected) const {
  const Json* value = Find(name);
  return Error(name,
               absl::StrCat(value == nullptr ? "missing" : Shown(*value), ", expected ", expected));
}

absl::StatusOr<int64_t> JsonFile::Int(const std::string& name, int64_t low, int64_t high) const {
  const Json* value = Find(name);
  if (value == nullptr || !IsIntegerIn(*value, low, high))
    return Mismatch(name, IntegerRange(low, high));
  return value->get<int64_t>();
}

absl::StatusOr<int64_t> JsonFile::IntOr(const std::string& name, int64_t low, int64_t high,
                                        int64_t absent) const {
  if (!Has(name)) return absent;
  return Int(name, low, high);
}

absl::StatusOr<double> JsonFile::PositiveNumber(const std::string& name) const {
  const Json* value = Find(name);
  if (value == nullptr || !value->is_number()) return Mismatch(name, "a positive number");
  const double number = value->get<double>();
  if (!std::isfinite(number) || !(number > 0)) return Mismatch(name, "a positive number");
  return number;
}

absl::StatusOr<double> JsonFile::PositiveNumberOr(const std::string& name, double absent) const {
  if (!Has(name)) return absent;
  return PositiveNumber(name);
}

absl::StatusOr<std::vector<double>> JsonFile::PositiveNumbers(const std::string& name) const {
  const Json* value = Find(name);
  const std::string expected = "a list of positive numbers";
  if (value == nullptr || !value->is_array()) return Mismatch(name, expected);
  std::vector<double> numbers;
  for (const Json& entry : *value) {
    const double number = entry.is_number() ? entry.get<double>() : 0;
    if (!std::isfinite(number) || !(number > 0)) return Mismatch(name, expected);
    numbers.push_back(number);
  }
  return numbers;
}

absl::StatusOr<bool> JsonFile::BoolOr(const std::string& name, bool absent) const {
  const Json* value = Find(name);
  if (value == nullptr) return absent;
  if (!value->is_boolean()) return Mismatch(name, "true or false");
  return value->get<bool>();
}

absl::StatusOr<std::string> JsonFile::String(const std::string& name) const {
  const Json* value = Find(name);
  if (value == nullptr || !value->is_string()) return Mismatch(name, "a string");
  return value->get<std::string>();
}

absl::StatusOr<std::string> JsonFile::StringOr(const std::string& name,
                                               const std::string& absent) const {
  if (!Has(name)) return absent;
  return String(name);
}

absl::StatusOr<std::vector<std::string>> JsonFile::StringsOr(const std::string& name) const {
  std::vector<std::string> strings;
  const Json* value = Find(name);
  if (value == nullptr) return strings;
  if (!value->is_array()) return Mismatch(name, "a list of strings");
  for (const Json& item : *value) {
    if (!item.is_string()) return Mismatch(name, "a list of strings");
    strings.push_back(item.get<std::string>());
  }
  return strings;
}

absl::StatusOr<std::vector<int64_t>> JsonFile::IntsOr(const std::string& name, int64_t low,
                                                      int64_t high) const {
  std::vector<int64_t> integers;
  const Json* value = Find(name);
  if (value == nullptr) return integers;
  const Json list = value->is_array() ? *value : Json::array({*value});
  for (const Json& item : list) {
    if (!IsIntegerIn(item, low, high))
      return Mismatch(name, IntegerRange(low, high) + " or a list of them");
    integers.push_back(item.get<int64_t>());
  }
  return integers;
}

absl::StatusOr<JsonFile> JsonFile::Object(const std::string& name) const {
  const Json* value = Find(name);
  if (value == nullptr || !value->is_object()) return Mismatch(name, "an object");
  return JsonFile(path_, absl::StrCat(prefix_, name, "."), std::make_shared<const Json>(*value));
}

std::vector<std::string> JsonFile::names() const {
  std::vector<std::string> all;
  for (const auto& item : object_->items()) all.push_back(item.key());
  return all;
}

}  // namespace coppice::model
