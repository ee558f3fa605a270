// Whether a JSON value fulfils a schema, for the keywords that grammar/json_schema.h serves: written
// apart from it, for its tests. Formats are not looked at.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "tokenizer/regex.h"
#include "tokenizer/utf8.h"

namespace coppice::grammar {

class JsonValidator {
 public:
  using Json = nlohmann::json;
  explicit JsonValidator(const Json& document) : document_(document) {}

  bool Fulfils(const Json& value) const { return Fulfils(value, document_); }

 private:
  static bool Is(const Json& value, const std::string& type) {
    if (type == "integer")
      return value.is_number() && std::floor(value.get<double>()) == value.get<double>();
    if (type == "number") return value.is_number();
    return value.type_name() == type;
  }

  static bool IsOfTypes(const Json& value, const Json& types) {
    if (types.is_string()) return Is(value, types.get<std::string>());
    for (const Json& type : types) {
      if (Is(value, type.get<std::string>())) return true;
    }
    return false;
  }

  bool Fulfils(const Json& value, const Json& schema) const {
    if (schema.is_boolean()) return schema.get<bool>();
    const auto has = [&schema](const char* key) { return schema.contains(key); };
    if (has("$ref")) {
      const auto reference = schema["$ref"].get<std::string>().substr(1);
      if (!Fulfils(value, document_.at(Json::json_pointer(reference)))) return false;
    }
    if (has("type") && !IsOfTypes(value, schema["type"])) return false;
    if (has("const") && value != schema["const"]) return false;
    if (has("enum") && !Contains(schema["enum"], value)) return false;
    for (const char* key : {"anyOf", "oneOf", "allOf"}) {
      if (!has(key)) continue;
      size_t fulfilled = 0;
      for (const Json& one : schema[key]) fulfilled += Fulfils(value, one) ? 1 : 0;
      if (fulfilled < (key == std::string("allOf") ? schema[key].size() : 1)) return false;
    }
    if (value.is_object()) return Object(value, schema);
    if (value.is_array()) return Array(value, schema);
    if (value.is_string()) return String(value.get<std::string>(), schema);
    if (value.is_number()) {
      return value >= schema.value("minimum", value) && value <= schema.value("maximum", value) &&
             (!has("exclusiveMinimum") || value > Limit(schema, "exclusiveMinimum", "minimum")) &&
             (!has("exclusiveMaximum") || value < Limit(schema, "exclusiveMaximum", "maximum")) &&
             (!has("multipleOf") || IsMultiple(value, schema["multipleOf"]));
    }
    return true;
  }

  static Json Limit(const Json& schema, const char* key, const char* of_draft_4) {
    return schema[key] == true ? schema[of_draft_4] : schema[key];
  }

  static bool IsMultiple(double value, double step) {
    const double times = value / step;
    return std::abs(times - std::round(times)) < 1e-6;
  }

  static bool Contains(const Json& list, const Json& value) {
    for (const Json& one : list) {
      if (one == value) return true;
    }
    return false;
  }

  static bool Within(size_t count, const Json& schema, const char* min, const char* max) {
    return count >= schema.value(min, size_t{0}) && count <= schema.value(max, count);
  }

  bool Object(const Json& value, const Json& schema) const {
    const Json properties = schema.value("properties", Json::object());
    const Json patterns = schema.value("patternProperties", Json::object());
    const Json additional = schema.value("additionalProperties", Json(true));
    for (const auto& item : value.items()) {
      bool listed = properties.contains(item.key());
      if (listed && !Fulfils(item.value(), properties[item.key()])) return false;
      for (const auto& pattern : patterns.items()) {
        if (!HasMatch(item.key(), pattern.key())) continue;
        listed = true;
        if (!Fulfils(item.value(), pattern.value())) return false;
      }
      if (!listed && !Fulfils(item.value(), additional)) return false;
      if (!Fulfils(Json(item.key()), schema.value("propertyNames", Json(true)))) return false;
    }
    for (const Json& key : schema.value("required", Json::array())) {
      if (!value.contains(key.get<std::string>())) return false;
    }
    return Within(value.size(), schema, "minProperties", "maxProperties");
  }

  bool Array(const Json& value, const Json& schema) const {
    Json first = schema.value("prefixItems", Json::array());
    Json others = schema.value("items", Json(true));
    if (others.is_array()) {
      first = std::exchange(others, schema.value("additionalItems", Json(true)));
    }
    if (schema.value("uniqueItems", false)) {
      for (size_t i = 0; i < value.size(); ++i) {
        for (size_t j = 0; j < i; ++j) {
          if (value[i] == value[j]) return false;
        }
      }
    }
    for (size_t i = 0; i < value.size(); ++i) {
      if (!Fulfils(value[i], i < first.size() ? first[i] : others)) return false;
    }
    return Within(value.size(), schema, "minItems", "maxItems");
  }

  static bool String(const std::string& value, const Json& schema) {
    size_t characters = 0;
    for (absl::string_view left = value; !left.empty(); ++characters)
      left.remove_prefix(tokenizer::NextUtf8Char(left).length);
    if (!Within(characters, schema, "minLength", "maxLength")) return false;
    return !schema.contains("pattern") || HasMatch(value, schema["pattern"].get<std::string>());
  }

  static bool HasMatch(const std::string& text, const std::string& pattern) {
    const auto regex = tokenizer::Regex::Compile(pattern, false);
    return regex.ok() && !regex->FindAll(text).empty();  // the patterns match no empty text
  }

  const Json& document_;
};

}  // namespace coppice::grammar
