#include "grammar/merge_keywords.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "grammar/decimal.h"
#include "grammar/json_formats.h"
#include "grammar/json_keywords.h"
#include "grammar/json_strings.h"

namespace coppice::grammar {
namespace {

constexpr const char* kObjectKeywords[] = {"properties", "additionalProperties", "required"};

bool IsObjectKeyword(absl::string_view key) {
  return std::find(std::begin(kObjectKeywords), std::end(kObjectKeywords), key) !=
         std::end(kObjectKeywords);
}

absl::Status NotMerged(const std::string& pointer, absl::string_view key) {
  return SchemaError(PointerTo(pointer, key),
                     absl::StrCat("\"", key, "\" of several schemas cannot be merged"));
}

// Schemas, each of which must be fulfilled.
OrderedJson Both(const OrderedJson& one, const OrderedJson& other) {
  if (one == other || other == true) return one;
  if (one == true) return other;
  if (one == false || other == false) return false;
  // Lists are joined, so that they do not nest.
  OrderedJson list = OrderedJson::array();
  for (const OrderedJson& schema : {one, other}) {
    const bool joins = schema.is_object() && schema.size() == 1 && schema.contains("allOf") &&
                       schema["allOf"].is_array();
    for (const OrderedJson& part : joins ? schema["allOf"] : OrderedJson::array({schema})) {
      if (std::find(list.begin(), list.end(), part) == list.end()) list.push_back(part);
    }
  }
  OrderedJson both = OrderedJson::object();
  both["allOf"] = std::move(list);
  return both;
}

OrderedJson AsList(const OrderedJson& value) {
  return value.is_array() ? value : OrderedJson::array({value});
}

bool Contains(const OrderedJson& list, const OrderedJson& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

OrderedJson CommonTypes(const OrderedJson& one, const OrderedJson& other) {
  OrderedJson types = OrderedJson::array();
  const OrderedJson first = AsList(one), second = AsList(other);
  for (const OrderedJson& type : first) {
    if (Contains(second, type) || (type == "integer" && Contains(second, "number")))
      types.push_back(type);
  }
  if (Contains(second, "integer") && Contains(first, "number") && !Contains(types, "integer"))
    types.push_back("integer");
  return types;
}

// "enum" or "const" as a list.
std::optional<OrderedJson> ListedValues(const OrderedJson& schema) {
  if (schema.contains("const")) return OrderedJson::array({schema["const"]});
  if (schema.contains("enum")) return schema["enum"];
  return std::nullopt;
}

// The properties of both, and what is said of others. A property that one of the schemas does not
// list is another one for it.
absl::Status MergeObjects(const std::string& pointer, const OrderedJson& more,
                          OrderedJson* merged) {
  const auto part = [](const OrderedJson& schema, const char* key, OrderedJson absent) {
    return schema.contains(key) ? schema[key] : std::move(absent);
  };
  const OrderedJson own = part(*merged, "properties", OrderedJson::object());
  const OrderedJson added = part(more, "properties", OrderedJson::object());
  const OrderedJson own_other = part(*merged, "additionalProperties", true);
  const OrderedJson added_other = part(more, "additionalProperties", true);
  const OrderedJson own_keys = part(*merged, "required", OrderedJson::array());
  const OrderedJson added_keys = part(more, "required", OrderedJson::array());
  if (!own.is_object() || !added.is_object()) return NotMerged(pointer, "properties");
  if (!own_keys.is_array() || !added_keys.is_array()) return NotMerged(pointer, "required");
  OrderedJson properties = OrderedJson::object();
  for (const auto& item : own.items()) {
    const OrderedJson& other = added.contains(item.key()) ? added[item.key()] : added_other;
    OrderedJson both = Both(item.value(), other);
    if (both != false) properties[item.key()] = std::move(both);
  }
  for (const auto& item : added.items()) {
    if (own.contains(item.key())) continue;
    OrderedJson both = Both(item.value(), own_other);
    if (both != false) properties[item.key()] = std::move(both);
  }
  if (merged->contains("properties") || more.contains("properties"))
    (*merged)["properties"] = std::move(properties);
  if (merged->contains("additionalProperties") || more.contains("additionalProperties"))
    (*merged)["additionalProperties"] = Both(own_other, added_other);
  OrderedJson required = own_keys;
  for (const OrderedJson& key : added_keys) {
    if (!Contains(required, key)) required.push_back(key);
  }
  if (!required.empty()) (*merged)["required"] = std::move(required);
  return absl::OkStatus();
}

// The number that limits more. side: 1 for lower limits, -1 for upper ones.
absl::StatusOr<OrderedJson> TighterLimit(const std::string& pointer, const std::string& key,
                                         const OrderedJson& one, const OrderedJson& other,
                                         int side) {
  if (!one.is_number() || !other.is_number()) return NotMerged(pointer, key);
  const auto first = Decimal::Parse(one.dump()), second = Decimal::Parse(other.dump());
  if (!first || !second) return NotMerged(pointer, key);
  return Compare(*first, *second) * side >= 0 ? one : other;
}

// The value of a keyword that both schemas have, with different values.
absl::StatusOr<OrderedJson> MergedValue(const std::string& pointer, const std::string& key,
                                        const OrderedJson& one, const OrderedJson& other) {
  for (const char* low :
       {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"}) {
    if (key == low) return TighterLimit(pointer, key, one, other, 1);
  }
  for (const char* high :
       {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"}) {
    if (key == high) return TighterLimit(pointer, key, one, other, -1);
  }
  if (key == "type") {
    OrderedJson types = CommonTypes(one, other);
    if (types.empty()) return NoValue(pointer);
    return types.size() == 1 ? types[0] : types;
  }
  if (key == "pattern" && one.is_string() && other.is_string())
    return OrderedJson(ExpressionOfAll({one.get<std::string>(), other.get<std::string>()}, {}));
  if (key == "format" && one.is_string() && other.is_string()) {
    if (!IsStringFormat(other.get<std::string>())) return one;
    if (!IsStringFormat(one.get<std::string>())) return other;
  }
  if (key == "uniqueItems" && one.is_boolean() && other.is_boolean()) return OrderedJson(true);
  if ((key == "items" || key == "propertyNames") && !one.is_array() && !other.is_array())
    return Both(one, other);
  const bool limits = !TypeOfKeyword(key).empty() || MayBeUnserved(key);
  if (limits) return NotMerged(pointer, key);
  return one;  // an annotation
}

bool HasAny(const OrderedJson& schema, std::initializer_list<const char*> keys) {
  return std::any_of(keys.begin(), keys.end(),
                     [&](const char* key) { return schema.contains(key); });
}

// Keywords whose meaning depends on others of the same schema.
absl::Status CheckPartners(const std::string& pointer, const OrderedJson& one,
                           const OrderedJson& other) {
  if (one.contains("patternProperties") &&
      HasAny(other, {"properties", "additionalProperties", "patternProperties"}))
    return NotMerged(pointer, "patternProperties");
  const bool tuple =
      one.contains("prefixItems") || (one.contains("items") && one["items"].is_array());
  if (tuple && HasAny(other, {"items", "prefixItems", "additionalItems"}))
    return NotMerged(pointer, one.contains("prefixItems") ? "prefixItems" : "items");
  for (const auto& [flag, limit] :
       {std::pair("exclusiveMinimum", "minimum"), std::pair("exclusiveMaximum", "maximum")}) {
    if (one.contains(flag) && one[flag].is_boolean() && HasAny(other, {flag, limit}))
      return NotMerged(pointer, flag);
  }
  return absl::OkStatus();
}

// Keeps the values of the schema's types, and the keywords that are for them.
absl::Status KeepTypes(const std::string& pointer, OrderedJson* schema) {
  if (!schema->contains("type")) return absl::OkStatus();
  const OrderedJson types = AsList((*schema)["type"]);
  const auto fits = [&](const OrderedJson& value) {
    return std::any_of(types.begin(), types.end(), [&](const OrderedJson& type) {
      return type.is_string() && HasType(value, type.get<std::string>());
    });
  };
  if (const auto values = ListedValues(*schema); values && values->is_array()) {
    OrderedJson kept = OrderedJson::array();
    for (const OrderedJson& value : *values) {
      if (fits(value)) kept.push_back(value);
    }
    if (kept.empty()) return NoValue(pointer);
    schema->erase("const");
    (*schema)["enum"] = std::move(kept);
  }
  std::vector<std::string> vain;
  for (const auto& item : schema->items()) {
    const std::string type(TypeOfKeyword(item.key()));
    const bool there = Contains(types, type) || (type == "number" && Contains(types, "integer"));
    if (!type.empty() && !there) vain.push_back(item.key());
  }
  for (const std::string& key : vain) schema->erase(key);
  return absl::OkStatus();
}

}  // namespace

absl::Status NoValue(const std::string& pointer) {
  return absl::NotFoundError(
      absl::StrCat("JSON schema, ", pointer, ": no value fulfils all that is demanded"));
}

bool IsNoValue(const absl::Status& status) { return absl::IsNotFound(status); }

absl::Status MergeKeywords(const std::string& pointer, const OrderedJson& more,
                           OrderedJson* merged) {
  if (merged->empty()) {
    *merged = more;
    return absl::OkStatus();
  }
  if (more == *merged) return absl::OkStatus();
  COPPICE_RETURN_IF_ERROR(CheckPartners(pointer, more, *merged));
  COPPICE_RETURN_IF_ERROR(CheckPartners(pointer, *merged, more));
  const std::optional<OrderedJson> own = ListedValues(*merged), added = ListedValues(more);
  if (own && added) {
    if (!own->is_array() || !added->is_array()) return NotMerged(pointer, "enum");
    OrderedJson common = OrderedJson::array();
    for (const OrderedJson& value : *own) {
      if (Contains(*added, value)) common.push_back(value);
    }
    if (common.empty()) return NoValue(pointer);
    merged->erase("const");
    (*merged)["enum"] = std::move(common);
  }
  COPPICE_RETURN_IF_ERROR(MergeObjects(pointer, more, merged));
  for (const auto& item : more.items()) {
    const std::string& key = item.key();
    if (IsObjectKeyword(key) || (own && added && (key == "enum" || key == "const"))) continue;
    if (!merged->contains(key)) {
      (*merged)[key] = item.value();
    } else if ((*merged)[key] != item.value()) {
      COPPICE_ASSIGN_OR_RETURN((*merged)[key],
                               MergedValue(pointer, key, (*merged)[key], item.value()));
    }
  }
  return KeepTypes(pointer, merged);
}

}  // namespace coppice::grammar
