#include "grammar/json_schema.h"

#include <algorithm>
#include <deque>
#include <memory>
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
#include "grammar/json_arrays.h"
#include "grammar/json_content.h"
#include "grammar/json_document.h"
#include "grammar/json_keywords.h"
#include "grammar/json_merge.h"
#include "grammar/json_numbers.h"
#include "grammar/json_objects.h"
#include "grammar/json_references.h"
#include "grammar/json_rules.h"
#include "grammar/json_strings.h"
#include "grammar/merge_keywords.h"
#include "grammar/schema_parts.h"

namespace coppice::grammar {
namespace {

constexpr size_t kMostRules = 1 << 17;       // more have no automaton
constexpr size_t kMostMadeBytes = 8u << 20;  // of schemas that are merged
constexpr absl::string_view kTypes[] = {"object",  "array",   "string", "number",
                                        "integer", "boolean", "null"};

class SchemaReader : public SchemaParts {
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
      auto part = Schema(next.place);
      if (IsNoValue(part.status())) return absl::InvalidArgumentError(part.status().message());
      COPPICE_RETURN_IF_ERROR(part.status());
      rules_.Set(next.rule, *std::move(part));
      if (rules_.size() > kMostRules)
        return SchemaError(next.place.pointer, "with it, the schema is too large");
    }
    COPPICE_RETURN_IF_ERROR(references_.CheckNoCircle());
    contents_.Finish();
    return whole;
  }

 private:
  using Types = std::set<std::string>;
  struct Open {
    DocumentPlace place;
    int rule;
  };

  Part RuleOf(const DocumentPlace& place) override {
    const auto [known, added] = rule_of_.try_emplace(place.value, 0);
    if (added) {
      known->second = rules_.Add(place.pointer);
      open_.push_back({place, known->second});
    }
    return Rule(known->second);
  }

  absl::StatusOr<Part> RuleOfAll(const std::vector<DocumentPlace>& schemas) override {
    if (schemas.size() == 1) return RuleOf(schemas[0]);
    COPPICE_ASSIGN_OR_RETURN(const DocumentPlace merged, merge_.Merged(schemas));
    return RuleOf(merged);
  }

  absl::StatusOr<Part> ReadNow(const DocumentPlace& schema) override { return Schema(schema); }

  absl::StatusOr<DocumentPlace> Resolved(DocumentPlace place) override {
    constexpr int kMostReferences = 100;
    for (int i = 0; place.value->is_object() && Has(place, "$ref"); ++i) {
      if (JsonMerge::Needed(*place.value)) return place;
      const DocumentPlace reference = At(place, "$ref");
      if (i == kMostReferences) return SchemaError(reference.pointer, "too many references");
      if (!reference.value->is_string())
        return SchemaError(reference.pointer, "it must be a string");
      const auto target = FindReference(document_, reference.value->get<std::string>());
      if (!target.ok()) return SchemaError(reference.pointer, target.status().message());
      place = *target;
    }
    return place;
  }

  absl::StatusOr<DocumentPlace> Made(OrderedJson schema, const std::string& pointer) override {
    std::string text = CompactJson(schema);
    made_bytes_ += text.size();
    if (made_bytes_ > kMostMadeBytes)
      return SchemaError(pointer, "with it, there is too much to merge");
    const auto [known, added] = made_.try_emplace(std::move(text));
    if (added) known->second = std::make_unique<OrderedJson>(std::move(schema));
    return DocumentPlace{known->second.get(), pointer};
  }

  void Ignored(const DocumentPlace& schema, absl::string_view keyword) override {
    if (annotations_ != nullptr) annotations_->push_back(PointerTo(schema.pointer, keyword));
  }

  absl::StatusOr<Part> Schema(const DocumentPlace& place) {
    const OrderedJson& schema = *place.value;
    if (schema.is_boolean()) {
      if (schema.get<bool>()) return rules_.Value();
      return SchemaError(place.pointer, "false allows no value");
    }
    if (!schema.is_object())
      return SchemaError(place.pointer, "a schema must be an object, true or false");
    if (JsonMerge::Needed(schema)) {
      COPPICE_ASSIGN_OR_RETURN(const DocumentPlace merged, merge_.Merged({place}));
      return Schema(merged);
    }
    std::string whole;
    for (const absl::string_view keyword : kWholeKeywords) {
      if (whole.empty() && schema.contains(keyword)) whole = std::string(keyword);
    }
    for (const auto& item : schema.items())
      COPPICE_RETURN_IF_ERROR(CheckKeyword(place, item.key(), whole));
    if (whole == "$ref") return Reference(At(place, whole));
    if (whole == "enum" || whole == "const") return Values(place, whole);
    if (!whole.empty()) return AnyOf(At(place, whole));
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
      const bool content = (keyword == "contentMediaType" || keyword == "contentSchema") &&
                           IsJsonContent(*place.value);
      if (!MayBeUnserved(keyword) && !content) Ignored(place, keyword);
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

  absl::StatusOr<Part> AnyOf(const DocumentPlace& place) {
    if (!place.value->is_array() || place.value->empty())
      return SchemaError(place.pointer, "it must be a list of schemas");
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
      const bool neutral = item.key() == "uniqueItems" && item.value() == false;
      if (type.empty() || neutral) continue;
      const bool fits = types.count(type) > 0 || (type == "number" && types.count("integer") > 0);
      if (implied) {
        types.insert(type);
      } else if (!fits && item.key() != "format") {  // a format of numbers is an annotation
        return SchemaError(PointerTo(place.pointer, item.key()),
                           absl::StrCat("\"", item.key(), "\" needs the type \"", type, "\""));
      }
    }
    if (types.empty() && IsJsonContent(*place.value)) types.insert("string");
    if (types.empty()) return rules_.Value();
    std::vector<Part> choices;
    for (const std::string& type : types) {
      COPPICE_ASSIGN_OR_RETURN(Part part, OfType(place, type));
      choices.push_back(std::move(part));
    }
    return Choice(std::move(choices));
  }

  absl::StatusOr<Part> OfType(const DocumentPlace& place, absl::string_view type) {
    if (type == "object") return objects_.OfSchema(place);
    if (type == "array") return arrays_.OfSchema(place);
    if (type == "string" && IsJsonContent(*place.value)) {
      return contents_.StringOf(Has(place, "contentSchema") ? RuleOf(At(place, "contentSchema"))
                                                            : rules_.Value());
    }
    if (type == "string") return strings_.OfSchema(place);
    if (type == "integer" || type == "number") return numbers_.OfSchema(place, type == "integer");
    if (type == "boolean") return Choice({rules_.Constant(true), rules_.Constant(false)});
    return rules_.Constant(nullptr);
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
  JsonObjects objects_{&rules_, &strings_, this};
  JsonArrays arrays_{&rules_, this};
  JsonContents contents_{&rules_};
  JsonMerge merge_{document_, this};
  // Schemas that the document has in another form, by their text.
  absl::flat_hash_map<std::string, std::unique_ptr<const OrderedJson>> made_;
  size_t made_bytes_ = 0;
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
