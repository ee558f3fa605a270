// Reads the fields of one JSON object with their types. Checks type, range, aliases and unknown
// names; errors name the field, and the first one is kept. Used by api. Thread-compatible.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "coordinator/http/api_error.h"

namespace coppice::coordinator {

// Parses strict JSON in UTF-8 whose top value is an object: no NaN, no lone surrogate, at most
// max_depth levels. Error: invalid_json.
std::optional<ApiError> ParseJsonObject(const std::string& text, int max_depth,
                                        nlohmann::json* object);

// Code of the errors about fields that exclude each other.
inline constexpr char kUnsupportedCombination[] = "unsupported_combination";

class JsonFields {
 public:
  using Names = absl::Span<const char* const>;  // the field's name, then its aliases

  // object must outlive this. path: "" for the request, "speculative" for what is inside it.
  JsonFields(const nlohmann::json& object, std::string path)
      : object_(object), path_(std::move(path)) {}

  // The value under any of the names; nullptr when absent or null. Two names with different values:
  // conflicting_fields.
  const nlohmann::json* Find(Names names);
  std::optional<int64_t> Integer(Names names, int64_t low, int64_t high);
  // In [low, high], or (low, high] with open_low.
  std::optional<double> Number(Names names, double low, double high, bool open_low = false);
  std::optional<bool> Bool(Names names);
  std::optional<std::string> String(Names names);
  std::vector<int64_t> Integers(Names names, int64_t low, int64_t high, size_t max_count);
  // Fields that are known but have no effect here.
  void Ignore(Names names) { Find(names); }
  // A field that may only have the value `neutral`. Otherwise: unsupported_field.
  void Neutral(const char* name, const nlohmann::json& neutral);
  // The names in the object that no call above has requested; two quotes for an empty name.
  std::vector<std::string> Unknown() const;

  // The name that the client used, or the first.
  std::string Spelling(Names names) const;
  // Records an error about a field, unless one is recorded already. Puts the path of the field
  // before the message.
  void Fail(const char* code, absl::string_view name, absl::string_view what);
  // The path of the field, with the name that the client used.
  std::string Path(absl::string_view name) const;
  const std::optional<ApiError>& error() const { return error_; }
  void set_error(ApiError error);

 private:
  const nlohmann::json& object_;
  const std::string path_;
  std::set<std::string> known_;
  std::optional<ApiError> error_;
};

// Whether every entry of the list is of a kind, such as &nlohmann::json::is_string.
bool AllOf(const nlohmann::json& list, bool (nlohmann::json::*is)() const noexcept);

// Accepts 4 and 4.0, but not 4.5, true or "4".
std::optional<int64_t> AsInteger(const nlohmann::json& value);

}  // namespace coppice::coordinator
