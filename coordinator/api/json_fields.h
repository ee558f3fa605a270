// Reads the fields of one JSON object with their types. Checks type, range, aliases and unknown
// names; errors name the field, and the first one is kept. An empty value (null, "", [] or {}) means
// that the field is absent. Used by api. Thread-compatible.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "coordinator/api/ignored_fields.h"
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
  // ignored: gets the fields that are ignored; nullptr: none is, unknown fields are refused.
  JsonFields(const nlohmann::json& object, std::string path, IgnoredFields* ignored = nullptr)
      : object_(object), path_(std::move(path)), ignored_(ignored) {}

  // The value under any of the names; nullptr when absent or empty. Two names with different
  // values: conflicting_fields.
  const nlohmann::json* Find(Names names);
  // The same for a field whose empty values mean something: nullptr only when absent or null.
  const nlohmann::json* FindGiven(Names names);
  // Values of other types than the field's are refused, but `false` means absent for all of them.
  std::optional<int64_t> Integer(Names names, int64_t low, int64_t high);
  // In [low, high], or (low, high] with open_low.
  std::optional<double> Number(Names names, double low, double high, bool open_low = false);
  std::optional<bool> Bool(Names names);
  std::optional<std::string> String(Names names);
  std::vector<int64_t> Integers(Names names, int64_t low, int64_t high, size_t max_count);
  // Find for a field that is no flag: `false` means that it is absent, too.
  const nlohmann::json* FindValue(Names names);
  // The object under the name; nullptr when absent or empty.
  const nlohmann::json* Object(const char* name);
  // Fields that are known and have no effect.
  void Ignore(Names names) { Find(names); }
  // A field that is known but not served. neutral: a list of the values that mean the same as its
  // absence; empty values always do, and false unless true does. Another value is ignored and named (Hint), or is
  // the error unsupported_field because ignoring it would give a wrong answer (Neutral).
  void Hint(const char* name, const nlohmann::json& neutral);
  void Neutral(const char* name, const nlohmann::json& neutral);
  // The fields with a value that no call above has requested; two quotes for an empty name.
  std::vector<std::string> Unknown() const;
  // Ignores and names the unknown fields, or refuses the first: unknown_field.
  void IgnoreUnknown();
  // The same for a field whose value has no effect; why completes the message "field ...".
  void IgnoreField(absl::string_view name, const char* code, absl::string_view why);
  IgnoredFields* ignored() const { return ignored_; }

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
  const nlohmann::json* FindUnless(Names names, bool (*absent)(const nlohmann::json&));
  bool IsNeutral(const char* name, const nlohmann::json& neutral);

  const nlohmann::json& object_;
  const std::string path_;
  IgnoredFields* const ignored_;
  std::set<std::string> known_;
  std::optional<ApiError> error_;
};

// null, "", [] or {}.
bool IsEmptyValue(const nlohmann::json& value);

// Whether every entry of the list is of a kind, such as &nlohmann::json::is_string.
bool AllOf(const nlohmann::json& list, bool (nlohmann::json::*is)() const noexcept);

// Accepts 4 and 4.0, but not 4.5, true or "4".
std::optional<int64_t> AsInteger(const nlohmann::json& value);

}  // namespace coppice::coordinator
