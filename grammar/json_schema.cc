#include "grammar/json_schema.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "grammar/json_document.h"
#include "grammar/json_keywords.h"
#include "grammar/json_limits.h"
#include "grammar/json_numbers.h"
#include "grammar/json_references.h"
#include "grammar/json_rules.h"
#include "grammar/json_strings.h"

namespace coppice::grammar {
namespace {

constexpr size_t kMostRules = 1 << 17;  // more have no automaton
constexpr absl::string_view kTypes[] = {"object",  "array",   "string", "number",
                                        "integer", "boolean", "null"};

bool HasType(const OrderedJson& value, absl::string_view type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (!value.is_number_float()) return value.is_number();
  const auto number = value.get<double>();
  return std::floor(number) == number;
}

class SchemaReader {
 public:
  SchemaReader(const OrderedJson& document, JsonRules* rules, std::vector<std::string>* annotations)
      : document_(document), annotations_(annotations), rules_(*rules) {}

  // Adds the rules. Returns what stands for the texts of the document. pointer: of the document.
  absl::StatusOr<Part> Read(const std::string& pointer) {
    const Part whole = RuleOf({&document_, pointer});
    while (!open_.empty()) {
      const Open next = std::move(open_.front());
      open_.pop_front();
      reading_ = next.rule;
      COPPICE_ASSIGN_OR_RETURN(Part part, Schema(next.place));
      rules_.Set(next.rule, std::move(part));
      if (rules_.size() > kMostRules)
        return SchemaError(next.place.pointer, "with it, the schema is too large");
    }
    COPPICE_RETURN_IF_ERROR(references_.CheckNoCircle());
    return whole;
  }

 private:
  using Types = std::set<std::string>;
  struct Open {
    DocumentPlace place;
    int rule;
  };

  // The rule of a schema. It is read later, because schemas may refer to themselves.
  Part RuleOf(const DocumentPlace& place) {
    const auto [known, added] = rule_of_.try_emplace(place.value, 0);
    if (added) {
      known->second = rules_.Add(place.pointer);
      open_.push_back({place, known->second});
    }
    return Rule(known->second);
  }

  absl::StatusOr<Part> Schema(const DocumentPlace& place) {
    const OrderedJson& schema = *place.value;
    if (schema.is_boolean()) {
      if (schema.get<bool>()) return rules_.Value();
      return SchemaError(place.pointer, "false allows no value");
    }
    if (!schema.is_object())
      return SchemaError(place.pointer, "a schema must be an object, true or false");
    std::string whole;
    for (const absl::string_view keyword : kWholeKeywords) {
      if (whole.empty() && schema.contains(keyword)) whole = std::string(keyword);
    }
    for (const auto& item : schema.items())
      COPPICE_RETURN_IF_ERROR(CheckKeyword(place, item.key(), whole));
    if (whole == "$ref") return Reference(At(place, whole));
    if (whole == "enum" || whole == "const") return Values(place, whole);
    if (!whole.empty()) return AnyOf(At(place, whole), whole);
    return OfTypes(place);
  }

  // whole: the keyword that describes the value completely, or "".
  absl::Status CheckKeyword(const DocumentPlace& place, const std::string& keyword,
                            absl::string_view whole) {
    if (OnlyDescribes(keyword) || keyword == whole) return absl::OkStatus();
    const bool values = whole == "enum" || whole == "const";
    const bool type = keyword == "type";
    const bool known = type || IsWhole(keyword) || !TypeOfKeyword(keyword).empty();
    if (!known && IsUnserved(keyword, *place.value)) {
      return SchemaError(PointerTo(place.pointer, keyword),
                         absl::StrCat("the keyword ", CompactJson(keyword), " is not served"));
    }
    if (!known) {
      if (annotations_ != nullptr && !MayBeUnserved(keyword))
        annotations_->push_back(PointerTo(place.pointer, keyword));
    } else if (!whole.empty() && !(type && values)) {
      return SchemaError(PointerTo(place.pointer, keyword),
                         absl::StrCat("\"", keyword, "\" is not served beside \"", whole, "\""));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Part> Reference(const DocumentPlace& place) {
    if (!place.value->is_string()) return SchemaError(place.pointer, "it must be a string");
    const auto target = FindReference(document_, place.value->get<std::string>());
    if (!target.ok()) return SchemaError(place.pointer, target.status().message());
    return SameValue(*target, place.pointer, /*reference=*/true);
  }

  // The rule of a schema for the value that the schema being read describes.
  Part SameValue(const DocumentPlace& schema, const std::string& pointer, bool reference) {
    Part part = RuleOf(schema);
    references_.Add(reading_, part->rule, pointer, reference);
    return part;
  }

  absl::StatusOr<Part> AnyOf(const DocumentPlace& place, const std::string& keyword) {
    if (!place.value->is_array() || place.value->empty())
      return SchemaError(place.pointer, "it must be a list of schemas");
    if (keyword == "allOf" && place.value->size() > 1)
      return SchemaError(place.pointer, "\"allOf\" is served with one schema only");
    std::vector<Part> choices;
    for (size_t i = 0; i < place.value->size(); ++i)
      choices.push_back(SameValue(At(place, i), place.pointer, /*reference=*/false));
    return Choice(std::move(choices));
  }

  // The values of "enum" or "const" that have the type.
  absl::StatusOr<Part> Values(const DocumentPlace& place, const std::string& keyword) {
    COPPICE_ASSIGN_OR_RETURN(const Types types, TypesOf(place));
    const DocumentPlace values = At(place, keyword);
    const bool one = keyword == "const";
    if (!one && !values.value->is_array())
      return SchemaError(values.pointer, "it must be a list of values");
    std::vector<Part> choices;
    const auto add = [&](const OrderedJson& value) {
      bool fits = types.empty();
      for (const std::string& type : types) fits = fits || HasType(value, type);
      if (fits) choices.push_back(rules_.Constant(value));
    };
    if (one) {
      add(*values.value);
    } else {
      for (const OrderedJson& value : *values.value) add(value);
    }
    if (choices.empty()) return SchemaError(values.pointer, "no value of it has the type");
    return Choice(std::move(choices));
  }

  // The types that "type" lists. Empty: no "type".
  absl::StatusOr<Types> TypesOf(const DocumentPlace& schema) {
    Types types;
    if (!Has(schema, "type")) return types;
    const DocumentPlace place = At(schema, "type");
    const auto list = place.value->is_array() ? *place.value : OrderedJson::array({*place.value});
    for (const OrderedJson& name : list) {
      bool known = false;
      for (const absl::string_view type : kTypes) {
        known = known || (name.is_string() && name.get<std::string>() == type);
      }
      if (!known) return SchemaError(place.pointer, CompactJson(name) + " is no type");
      types.insert(name.get<std::string>());
    }
    if (types.empty()) return SchemaError(place.pointer, "it must be a type or a list of types");
    return types;
  }

  absl::StatusOr<Part> OfTypes(const DocumentPlace& place) {
    COPPICE_ASSIGN_OR_RETURN(Types types, TypesOf(place));
    const bool implied = types.empty();
    for (const auto& item : place.value->items()) {
      const std::string type(TypeOfKeyword(item.key()));
      if (type.empty()) continue;
      const bool fits = types.count(type) > 0 || (type == "number" && types.count("integer") > 0);
      if (implied) {
        types.insert(type);
      } else if (!fits && item.key() != "format") {  // a format of numbers is an annotation
        return SchemaError(PointerTo(place.pointer, item.key()),
                           absl::StrCat("\"", item.key(), "\" needs the type \"", type, "\""));
      }
    }
    if (types.empty()) return rules_.Value();
    std::vector<Part> choices;
    for (const std::string& type : types) {
      COPPICE_ASSIGN_OR_RETURN(Part part, OfType(place, type));
      choices.push_back(std::move(part));
    }
    return Choice(std::move(choices));
  }

  absl::StatusOr<Part> OfType(const DocumentPlace& place, absl::string_view type) {
    if (type == "object") return ObjectSchema(place);
    if (type == "array") return ArraySchema(place);
    if (type == "string") return strings_.OfSchema(place);
    if (type == "integer" || type == "number") return numbers_.OfSchema(place, type == "integer");
    if (type == "boolean") return Choice({rules_.Constant(true), rules_.Constant(false)});
    return rules_.Constant(nullptr);
  }

  absl::StatusOr<Part> ObjectSchema(const DocumentPlace& place) {
    std::vector<JsonRules::Member> members;
    absl::flat_hash_map<std::string, size_t> member_of;
    const auto add = [&](const std::string& key, Part value) {
      member_of.emplace(key, members.size());
      members.push_back({key, false, std::move(value)});
    };
    const bool listed = Has(place, "properties");
    if (listed) {
      const DocumentPlace properties = At(place, "properties");
      if (!properties.value->is_object())
        return SchemaError(properties.pointer, "it must be an object of schemas");
      for (const auto& item : properties.value->items())
        add(item.key(), RuleOf(At(properties, item.key())));
    }
    bool refused = false;  // keys that are not listed are refused
    std::optional<Part> other;
    if (Has(place, "additionalProperties")) {
      const DocumentPlace additional = At(place, "additionalProperties");
      refused = *additional.value == false;
      if (!additional.value->is_boolean()) other = RuleOf(additional);
    }
    const Part unlisted = other.has_value() ? *other : rules_.Value();
    if (!listed && !refused) other = unlisted;
    if (Has(place, "required")) {
      const DocumentPlace required = At(place, "required");
      if (!required.value->is_array())
        return SchemaError(required.pointer, "it must be a list of keys");
      for (const OrderedJson& key : *required.value) {
        if (!key.is_string()) return SchemaError(required.pointer, "it must be a list of keys");
        const auto name = key.get<std::string>();
        if (member_of.count(name) == 0) {
          if (refused) {
            return SchemaError(required.pointer, absl::StrCat("the key ", CompactJson(key),
                                                              " is required, but not allowed"));
          }
          add(name, unlisted);
        }
        members[member_of[name]].required = true;
      }
    }
    COPPICE_ASSIGN_OR_RETURN(const std::optional<Keys> keys, ReadKeys(place));
    if (keys && !members.empty()) {
      return SchemaError(keys->pointer, "it is served for objects without keys of their own only");
    }
    COPPICE_ASSIGN_OR_RETURN(const CountLimits limits,
                             ReadLimits(place, "minProperties", "maxProperties"));
    if (keys && (keys->value || other))
      return rules_.ObjectOfAny(keys->key, keys->value.value_or(unlisted), limits.least,
                                limits.most);
    if (limits.there && (!members.empty() || !other.has_value())) {
      return SchemaError(place.pointer,
                         "\"minProperties\" and \"maxProperties\" are served for objects without "
                         "keys of their own only");
    }
    if (members.empty() && other.has_value())
      return rules_.ObjectOfAny(rules_.StringOf(0, Expression::kNoMost), *other, limits.least,
                                limits.most);
    return rules_.ObjectOf(place.pointer, members, other);
  }

  // What "propertyNames" or "patternProperties" says of the keys of an object.
  struct Keys {
    std::string pointer;
    Part key;
    std::optional<Part> value;  // of members with such a key, where it is given with the key
  };

  // nullopt: nothing.
  absl::StatusOr<std::optional<Keys>> ReadKeys(const DocumentPlace& place) {
    COPPICE_ASSIGN_OR_RETURN(std::optional<Keys> pattern, ReadPattern(place));
    if (!Has(place, "propertyNames")) return pattern;
    const DocumentPlace names = At(place, "propertyNames");
    const OrderedJson& value = *names.value;
    const bool any = value == true || value == OrderedJson::object() ||
                     value == OrderedJson({{"type", "string"}});
    if (any) return pattern;
    if (pattern) return SchemaError(names.pointer, "it is not served beside \"patternProperties\"");
    COPPICE_ASSIGN_OR_RETURN(Part key, KeySchema(names));
    return std::optional(Keys{names.pointer, std::move(key), std::nullopt});
  }

  absl::StatusOr<std::optional<Keys>> ReadPattern(const DocumentPlace& place) {
    if (!Has(place, "patternProperties")) return std::optional<Keys>();
    const DocumentPlace patterns = At(place, "patternProperties");
    if (!patterns.value->is_object())
      return SchemaError(patterns.pointer, "it must be an object of schemas");
    if (patterns.value->empty()) return std::optional<Keys>();
    // A key that several patterns match would need a value for all of them.
    if (patterns.value->size() > 1)
      return SchemaError(patterns.pointer, "more than one pattern is not served");
    const std::string pattern = patterns.value->begin().key();
    COPPICE_ASSIGN_OR_RETURN(Part key, strings_.OfPattern(patterns.pointer, pattern));
    return std::optional(Keys{patterns.pointer, std::move(key), RuleOf(At(patterns, pattern))});
  }

  // A schema of strings, for the keys of an object.
  absl::StatusOr<Part> KeySchema(DocumentPlace place) {
    constexpr int kMostReferences = 100;
    for (int i = 0; i < kMostReferences && place.value->is_object() && Has(place, "$ref"); ++i) {
      const DocumentPlace reference = At(place, "$ref");
      if (!reference.value->is_string())
        return SchemaError(reference.pointer, "it must be a string");
      const auto target = FindReference(document_, reference.value->get<std::string>());
      if (!target.ok()) return SchemaError(reference.pointer, target.status().message());
      place = *target;
    }
    if (!place.value->is_object()) return SchemaError(place.pointer, "no schema of strings");
    OrderedJson& strings = made_.emplace_back(*place.value);
    if (!strings.contains("type")) strings["type"] = "string";
    if (strings["type"] != "string") return SchemaError(place.pointer, "keys are strings");
    return Schema({&strings, place.pointer});
  }

  absl::StatusOr<Part> ArraySchema(const DocumentPlace& place) {
    COPPICE_ASSIGN_OR_RETURN(CountLimits limits, ReadLimits(place, "minItems", "maxItems"));
    std::vector<Part> first;
    if (Has(place, "prefixItems")) {
      const DocumentPlace items = At(place, "prefixItems");
      if (!items.value->is_array() || items.value->empty())
        return SchemaError(items.pointer, "it must be a list of schemas");
      for (size_t i = 0; i < items.value->size(); ++i) first.push_back(RuleOf(At(items, i)));
    }
    const auto at_most = [&limits](size_t count) {
      if (limits.most == Expression::kNoMost || static_cast<size_t>(limits.most) > count)
        limits.most = static_cast<int>(count);
    };
    std::optional<Part> other;
    if (Has(place, "items")) {
      const DocumentPlace items = At(place, "items");
      if (items.value->is_array())
        return SchemaError(items.pointer, "a list is not served, \"prefixItems\" is");
      if (*items.value == false) {
        at_most(first.size());
        if (limits.least > limits.most)
          return SchemaError(items.pointer, "fewer items than \"minItems\" are allowed");
      } else {
        other = RuleOf(items);
      }
    } else if (!first.empty()) {
      at_most(std::max(first.size(), static_cast<size_t>(limits.least)));
    }
    return rules_.ArrayOf(place.pointer, first, other.has_value() ? *other : rules_.Value(),
                          limits.least, limits.most);
  }

  const OrderedJson& document_;
  std::vector<std::string>* const annotations_;
  JsonRules& rules_;
  absl::flat_hash_map<const OrderedJson*, int> rule_of_;
  std::deque<Open> open_;
  JsonReferences references_;
  int reading_ = 0;  // the rule of the schema that is being read
  JsonNumbers numbers_{&rules_};
  JsonStrings strings_{&rules_, annotations_};
  std::deque<OrderedJson> made_;  // schemas that the document has in another form
};

}  // namespace

absl::StatusOr<Grammar> ReadJsonSchema(absl::string_view text,
                                       std::vector<std::string>* annotations) {
  COPPICE_ASSIGN_OR_RETURN(const OrderedJson document, ParseSchemaDocument(text));
  JsonRules rules;
  COPPICE_RETURN_IF_ERROR(SchemaReader(document, &rules, annotations).Read("#").status());
  return std::move(rules).Take();
}

absl::StatusOr<Part> AddJsonSchema(const OrderedJson& schema, const std::string& pointer,
                                   JsonRules* rules, std::vector<std::string>* annotations) {
  return SchemaReader(schema, rules, annotations).Read(pointer);
}

absl::StatusOr<Grammar> ReadJsonSchema(absl::string_view text) {
  return ReadJsonSchema(text, nullptr);
}

}  // namespace coppice::grammar
