#include "grammar/json_arrays.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace coppice::grammar {
namespace {

// Whether they are the same for "uniqueItems": 1 and 1.0 are, and the order of members is no matter.
bool SameItem(const OrderedJson& one, const OrderedJson& other) {
  return nlohmann::json(one) == nlohmann::json(other);
}

}  // namespace

absl::StatusOr<std::vector<OrderedJson>> JsonArrays::ListedItems(const DocumentPlace& schema) {
  std::vector<OrderedJson> values;
  if (!Has(schema, "items") || Has(schema, "prefixItems")) return values;
  COPPICE_ASSIGN_OR_RETURN(const DocumentPlace items, schemas_.Resolved(At(schema, "items")));
  if (!items.value->is_object() || Has(items, "anyOf") || Has(items, "allOf") ||
      Has(items, "oneOf") || Has(items, "$ref"))
    return values;
  const OrderedJson& item = *items.value;
  const OrderedJson type = item.value("type", OrderedJson());
  OrderedJson listed = OrderedJson::array();
  if (item.contains("const")) {
    listed.push_back(item["const"]);
  } else if (item.contains("enum")) {
    listed = item["enum"];
  } else if (type == "boolean") {
    listed = {true, false};
  } else if (type == "null") {
    listed = {nullptr};
  }
  if (!listed.is_array() || listed.size() > 2 * kMostUnique) return values;
  for (const OrderedJson& value : listed) {
    const bool string = value.is_string();
    // Of types beside "enum" only the usual ones are followed.
    if (!type.is_null() && type != "boolean" && type != "null" && !(type == "string" && string) &&
        !(type == "integer" && value.is_number_integer()))
      return std::vector<OrderedJson>();
    const bool known = std::any_of(values.begin(), values.end(), [&](const OrderedJson& other) {
      return SameItem(value, other);
    });
    if (!known) values.push_back(value);
    if (values.size() > kMostUnique) return std::vector<OrderedJson>();
  }
  return values;
}

// A rule for each set of values that are used: the text after the last of them.
Part JsonArrays::Subsets(const std::string& name, const std::vector<OrderedJson>& values, int least,
                         int most) {
  const uint32_t sets = uint32_t{1} << values.size();
  std::vector<int> after;
  for (uint32_t used = 0; used < sets; ++used) after.push_back(rules_.Add(name));
  const Part comma = rules_.Comma();
  const Part end = Sequence({rules_.Space(), Literal("]")});
  std::vector<Part> literals;
  for (const OrderedJson& value : values) {
    const int rule = rules_.Add(name);  // drawn once
    rules_.Set(rule, Literal(CompactJson(value)));
    literals.push_back(Rule(rule));
  }
  for (uint32_t used = 0; used < sets; ++used) {
    const int count = std::popcount(used);
    std::vector<Part> ways;
    if (count >= least) ways.push_back(end);
    for (size_t i = 0; i < values.size() && count < most; ++i) {
      const uint32_t more = used | uint32_t{1} << i;
      if (more == used) continue;
      const Part item = Sequence({literals[i], Rule(after[more])});
      ways.push_back(used == 0 ? Sequence({rules_.Space(), item}) : Sequence({comma, item}));
    }
    rules_.Set(after[used], Choice(std::move(ways)));
  }
  return Sequence({Literal("["), Rule(after[0])});
}

absl::StatusOr<Part> JsonArrays::OfSchema(const DocumentPlace& schema) {
  COPPICE_ASSIGN_OR_RETURN(CountLimits limits, ReadLimits(schema, "minItems", "maxItems"));
  // The items of a list in "items" are those of "prefixItems" (before 2020-12).
  const bool old = Has(schema, "items") && At(schema, "items").value->is_array();
  const char* const first_key = old ? "items" : "prefixItems";
  const char* const other_key = old ? "additionalItems" : "items";
  if (old && Has(schema, "prefixItems"))
    return SchemaError(PointerTo(schema.pointer, "items"), "a list is not served here");
  std::vector<Part> first;
  if (Has(schema, first_key)) {
    const DocumentPlace items = At(schema, first_key);
    if (!items.value->is_array() || items.value->empty())
      return SchemaError(items.pointer, "it must be a list of schemas");
    for (size_t i = 0; i < items.value->size(); ++i) first.push_back(schemas_.RuleOf(At(items, i)));
  }
  const auto at_most = [&limits](size_t count) {
    if (limits.most == Expression::kNoMost || static_cast<size_t>(limits.most) > count)
      limits.most = static_cast<int>(count);
  };
  std::optional<Part> other;
  if (Has(schema, other_key)) {
    const DocumentPlace items = At(schema, other_key);
    if (*items.value == false) {
      at_most(first.size());
      if (limits.least > limits.most)
        return SchemaError(items.pointer, "fewer items than \"minItems\" are allowed");
    } else {
      other = schemas_.RuleOf(items);
    }
  } else if (!first.empty()) {
    at_most(std::max(first.size(), static_cast<size_t>(limits.least)));
  }
  const bool several = limits.most == Expression::kNoMost || limits.most > 1;
  if (Has(schema, "uniqueItems")) {
    const DocumentPlace unique = At(schema, "uniqueItems");
    if (!unique.value->is_boolean()) return SchemaError(unique.pointer, "it must be true or false");
    if (*unique.value == true && several) {
      COPPICE_ASSIGN_OR_RETURN(const std::vector<OrderedJson> values, ListedItems(schema));
      const auto count = static_cast<int>(values.size());
      if (count > 0 && limits.least > count) {
        return SchemaError(unique.pointer,
                           absl::StrCat("there are only ", count, " different items"));
      }
      for (const OrderedJson& value : values)
        left_bytes_ -= static_cast<int64_t>(CompactJson(value).size());
      if (left_bytes_ < 0) return SchemaError(unique.pointer, "the values are too long");
      if (count > 0)
        return Subsets(schema.pointer, values, limits.least,
                       limits.most == Expression::kNoMost ? count : limits.most);
      schemas_.Ignored(schema, "uniqueItems");
    }
  }
  return rules_.ArrayOf(schema.pointer, first, other.has_value() ? *other : rules_.Value(),
                        limits.least, limits.most);
}

}  // namespace coppice::grammar
