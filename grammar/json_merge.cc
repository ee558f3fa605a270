#include "grammar/json_merge.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "grammar/json_keywords.h"
#include "grammar/merge_keywords.h"

namespace coppice::grammar {
namespace {

constexpr int kDeepestMerge = 50;

bool Limits(absl::string_view keyword) {
  return keyword == "type" || IsWhole(keyword) || !TypeOfKeyword(keyword).empty() ||
         MayBeUnserved(keyword);
}

// Comparisons that merging the schema takes, at most.
int64_t MergeCost(const OrderedJson& schema) {
  int64_t cost = 1;
  for (const char* key : {"properties", "required", "enum"}) {
    if (!schema.contains(key)) continue;
    const auto size = static_cast<int64_t>(schema[key].size());
    cost += 2 * size * size;
  }
  return cost;
}

}  // namespace

bool JsonMerge::Needed(const OrderedJson& schema) {
  bool refers = false;
  int limits = 0;
  for (const char* keyword : {"$ref", "anyOf", "oneOf", "allOf"})
    refers = refers || schema.contains(keyword);
  if (!refers) return false;
  for (const auto& item : schema.items()) limits += Limits(item.key()) ? 1 : 0;
  return limits > 1 || (schema.contains("allOf") && schema["allOf"].size() > 1);
}

absl::Status JsonMerge::Collect(const DocumentPlace& schema, std::vector<DocumentPlace>* flat) {
  if (--left_ < 0) return SchemaError(schema.pointer, "there is too much to merge");
  if (*schema.value == true) return absl::OkStatus();
  if (*schema.value == false) return NoValue(schema.pointer);
  if (!schema.value->is_object())
    return SchemaError(schema.pointer, "a schema must be an object, true or false");
  if (nested_ == kDeepestMerge) {
    return SchemaError(schema.pointer,
                       "the reference leads back to itself, or schemas are nested too deep");
  }
  OrderedJson own = OrderedJson::object();
  for (const auto& item : schema.value->items()) {
    if (item.key() != "$ref" && item.key() != "allOf" && !OnlyDescribes(item.key()))
      own[item.key()] = item.value();
  }
  if (!own.empty()) {
    COPPICE_ASSIGN_OR_RETURN(const DocumentPlace made,
                             schemas_.Made(std::move(own), schema.pointer));
    flat->push_back(made);
  }
  ++nested_;
  if (Has(schema, "$ref")) {
    const DocumentPlace reference = At(schema, "$ref");
    if (!reference.value->is_string()) return SchemaError(reference.pointer, "it must be a string");
    const auto target = FindReference(document_, reference.value->get<std::string>());
    if (!target.ok()) return SchemaError(reference.pointer, target.status().message());
    COPPICE_RETURN_IF_ERROR(Collect(*target, flat));
  }
  if (Has(schema, "allOf")) {
    const DocumentPlace all = At(schema, "allOf");
    if (!all.value->is_array() || all.value->empty())
      return SchemaError(all.pointer, "it must be a list of schemas");
    for (size_t i = 0; i < all.value->size(); ++i)
      COPPICE_RETURN_IF_ERROR(Collect(At(all, i), flat));
  }
  --nested_;
  return absl::OkStatus();
}

absl::StatusOr<OrderedJson> JsonMerge::MergedJson(const std::vector<DocumentPlace>& schemas) {
  std::vector<DocumentPlace> flat;
  for (const DocumentPlace& schema : schemas) COPPICE_RETURN_IF_ERROR(Collect(schema, &flat));
  OrderedJson merged = OrderedJson::object();
  std::vector<DocumentPlace> choices;  // lists of "anyOf", of which the first is multiplied out
  for (const DocumentPlace& one : flat) {
    OrderedJson rest = *one.value;
    for (const char* keyword : {"anyOf", "oneOf"}) {
      if (!rest.contains(keyword)) continue;
      const DocumentPlace list = At(one, keyword);
      if (!list.value->is_array() || list.value->empty())
        return SchemaError(list.pointer, "it must be a list of schemas");
      bool known = false;
      for (const DocumentPlace& other : choices) known = known || *other.value == *list.value;
      if (!known) choices.push_back(list);
      rest.erase(keyword);
    }
    compares_left_ -= MergeCost(rest) + MergeCost(merged);
    if (compares_left_ < 0) return SchemaError(one.pointer, "there is too much to merge");
    COPPICE_RETURN_IF_ERROR(MergeKeywords(one.pointer, rest, &merged));
  }
  if (choices.empty()) return merged;
  const DocumentPlace first = choices[0];
  for (size_t i = 1; i < choices.size(); ++i) {
    OrderedJson more = OrderedJson::object();
    more["anyOf"] = *choices[i].value;
    merged["allOf"].push_back(std::move(more));
  }
  const std::string& pointer = schemas[0].pointer;
  if (merged.empty()) return OrderedJson({{"anyOf", *first.value}});
  COPPICE_ASSIGN_OR_RETURN(const DocumentPlace rest, schemas_.Made(std::move(merged), pointer));
  OrderedJson ways = OrderedJson::array();
  for (size_t i = 0; i < first.value->size(); ++i) {
    auto way = Merged({At(first, i), rest});
    if (IsNoValue(way.status())) continue;
    COPPICE_RETURN_IF_ERROR(way.status());
    ways.push_back(*way->value);
  }
  if (ways.empty()) return NoValue(pointer);
  return ways.size() == 1 ? ways[0] : OrderedJson({{"anyOf", std::move(ways)}});
}

absl::StatusOr<DocumentPlace> JsonMerge::Merged(const std::vector<DocumentPlace>& schemas) {
  const int nested = nested_++;
  auto merged = MergedJson(schemas);
  nested_ = nested;
  COPPICE_RETURN_IF_ERROR(merged.status());
  return schemas_.Made(*std::move(merged), schemas[0].pointer);
}

}  // namespace coppice::grammar
