#include "grammar/json_objects.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "grammar/json_keywords.h"
#include "grammar/merge_keywords.h"
#include "tokenizer/utf8.h"

namespace coppice::grammar {
namespace {

constexpr char kTooManyPatterns[] = "there are too many patterns of keys that one key may match";

// An expression that only this text matches.
std::string ExactExpression(absl::string_view text) {
  std::string expression = "^";
  while (!text.empty()) {
    const tokenizer::Utf8Char c = tokenizer::NextUtf8Char(text);
    absl::StrAppend(&expression, "\\x{", absl::Hex(c.code_point), "}");
    text.remove_prefix(c.length);
  }
  return expression + "$";
}

bool HasKey(Automaton* keys, const std::string& key) {
  const std::string quoted = CompactJson(key);
  Automaton::State state = keys->start();
  for (const char c : absl::string_view(quoted).substr(1, quoted.size() - 2))
    state = keys->Next(state, static_cast<uint8_t>(c));
  return state >= 0 && keys->Complete(state);
}

}  // namespace

absl::StatusOr<Automaton> JsonObjects::KeysWith(const std::string& pointer,
                                                const std::string& expression) {
  if (--classes_left_ < 0) return SchemaError(pointer, kTooManyPatterns);
  COPPICE_ASSIGN_OR_RETURN(const Grammar grammar, strings_.ReadPattern(pointer, expression));
  for (const Part& rule : grammar.rules) expressions_left_ -= CountExpressions(*rule);
  if (expressions_left_ < 0) return SchemaError(pointer, "the patterns of keys are too large");
  return Automaton::Make(grammar);
}

absl::StatusOr<std::vector<JsonObjects::Member>> JsonObjects::ReadMembers(
    const DocumentPlace& schema) {
  std::vector<Member> members;
  if (Has(schema, "properties")) {
    const DocumentPlace properties = At(schema, "properties");
    if (!properties.value->is_object())
      return SchemaError(properties.pointer, "it must be an object of schemas");
    for (const auto& item : properties.value->items())
      members.push_back({item.key(), {At(properties, item.key())}, false});
  }
  if (!Has(schema, "required")) return members;
  const DocumentPlace required = At(schema, "required");
  absl::flat_hash_map<std::string, size_t> member_of;
  for (size_t i = 0; i < members.size(); ++i) member_of[members[i].key] = i;
  if (!required.value->is_array())
    return SchemaError(required.pointer, "it must be a list of keys");
  for (const OrderedJson& key : *required.value) {
    if (!key.is_string()) return SchemaError(required.pointer, "it must be a list of keys");
    const auto name = key.get<std::string>();
    const auto [at, added] = member_of.try_emplace(name, members.size());
    if (added) members.push_back({name, {}, false});
    members[at->second].required = true;
  }
  return members;
}

// What "patternProperties" and "propertyNames" say.
absl::StatusOr<JsonObjects::Keys> JsonObjects::ReadKeys(const DocumentPlace& schema) {
  Keys keys;
  if (Has(schema, "patternProperties")) {
    const DocumentPlace patterns = At(schema, "patternProperties");
    if (!patterns.value->is_object())
      return SchemaError(patterns.pointer, "it must be an object of schemas");
    for (const auto& item : patterns.value->items()) {
      auto matching = KeysWith(patterns.pointer, item.key());
      if (!matching.ok() && !IsNoText(matching.status())) {
        return SchemaError(patterns.pointer, matching.status().message());
      }
      if (matching.ok())
        keys.patterns.push_back({item.key(), At(patterns, item.key()), *std::move(matching)});
    }
    keys.pointer = patterns.pointer;
  }
  if (!Has(schema, "propertyNames")) return keys;
  const DocumentPlace names = At(schema, "propertyNames");
  const OrderedJson& value = *names.value;
  if (value == true || value == OrderedJson::object() || value == OrderedJson({{"type", "string"}}))
    return keys;
  keys.pointer = names.pointer;
  COPPICE_RETURN_IF_ERROR(ReadNames(names, &keys));
  return keys;
}

// A schema of strings, for the keys of an object.
absl::Status JsonObjects::ReadNames(DocumentPlace place, Keys* keys) {
  COPPICE_ASSIGN_OR_RETURN(place, schemas_.Resolved(place));
  if (!place.value->is_object()) return SchemaError(place.pointer, "no schema of strings");
  OrderedJson strings = *place.value;
  if (!strings.contains("type")) strings["type"] = "string";
  if (strings["type"] != "string") return SchemaError(place.pointer, "keys are strings");
  COPPICE_ASSIGN_OR_RETURN(const DocumentPlace made, schemas_.Made(strings, place.pointer));
  COPPICE_ASSIGN_OR_RETURN(keys->listed, schemas_.ReadNow(made));
  for (const auto& item : strings.items()) {
    const std::string& key = item.key();
    if (key != "type" && TypeOfKeyword(key) != "string" && !OnlyDescribes(key))
      return absl::OkStatus();
  }
  COPPICE_ASSIGN_OR_RETURN(keys->names, strings_.ExpressionsOf(made));
  return absl::OkStatus();
}

// Whether a key can match both patterns. Goes through the states that both reach with one text.
absl::StatusOr<bool> JsonObjects::Overlap(const std::string& pointer, Automaton* one,
                                          Automaton* other) {
  using Pair = std::pair<Automaton::State, Automaton::State>;
  absl::flat_hash_set<Pair> seen = {{one->start(), other->start()}};
  std::vector<Pair> open(seen.begin(), seen.end());
  while (!open.empty()) {
    const Pair at = open.back();
    open.pop_back();
    if (one->Complete(at.first) && other->Complete(at.second)) return true;
    if (--pairs_left_ < 0) return SchemaError(pointer, kTooManyPatterns);
    for (int byte = 0; byte < 256; ++byte) {
      const auto b = static_cast<uint8_t>(byte);
      const Pair next = {one->Next(at.first, b), other->Next(at.second, b)};
      const bool dead = next.first == Automaton::kDead || next.second == Automaton::kDead;
      if (!dead && seen.insert(next).second) open.push_back(next);
    }
  }
  if (one->refusals() + other->refusals() > 0) return SchemaError(pointer, kTooManyPatterns);
  return false;
}

absl::Status JsonObjects::AddPatterned(const std::vector<Member>& members,
                                       const std::optional<DocumentPlace>& other, Keys* keys,
                                       std::vector<JsonRules::Other>* others) {
  const size_t count = keys->patterns.size();
  std::vector<std::vector<bool>> overlap(count, std::vector<bool>(count));
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < i; ++j) {
      COPPICE_ASSIGN_OR_RETURN(const bool both, Overlap(keys->pointer, &keys->patterns[i].keys,
                                                        &keys->patterns[j].keys));
      overlap[i][j] = overlap[j][i] = both;
    }
  }
  std::vector<size_t> chosen;
  const auto joins = [&](size_t i) {  // whether a key of the chosen patterns may match this one
    return std::all_of(chosen.begin(), chosen.end(), [&](size_t j) { return overlap[i][j]; });
  };
  // The keys that match the chosen patterns and none of the rest.
  const auto add_class = [&]() -> absl::Status {
    std::vector<DocumentPlace> schemas;
    std::vector<std::string> must = keys->names, must_not;
    for (const Member& member : members) {
      const bool meant = std::all_of(chosen.begin(), chosen.end(), [&](size_t i) {
        return HasKey(&keys->patterns[i].keys, member.key);
      });
      if (meant) must_not.push_back(ExactExpression(member.key));
    }
    for (size_t i = 0; i < count; ++i) {
      if (std::find(chosen.begin(), chosen.end(), i) != chosen.end()) {
        must.push_back(keys->patterns[i].text);
        schemas.push_back(keys->patterns[i].schema);
      } else if (joins(i)) {
        must_not.push_back(keys->patterns[i].text);
      }
    }
    if (schemas.empty()) {
      if (!other) return absl::OkStatus();
      schemas.push_back(*other);
    }
    auto value = schemas_.RuleOfAll(schemas);
    if (IsNoValue(value.status())) return absl::OkStatus();
    COPPICE_RETURN_IF_ERROR(value.status());
    if (--classes_left_ < 0) return SchemaError(keys->pointer, kTooManyPatterns);
    COPPICE_ASSIGN_OR_RETURN(Part key,
                             strings_.CharactersOf(keys->pointer, ExpressionOfAll(must, must_not)));
    others->push_back({Sequence({std::move(key), Literal("\"")}), *std::move(value)});
    return absl::OkStatus();
  };
  const std::function<absl::Status(size_t)> choose = [&](size_t next) -> absl::Status {
    while (next < count && !joins(next)) ++next;
    if (next == count) return add_class();
    COPPICE_RETURN_IF_ERROR(choose(next + 1));
    chosen.push_back(next);
    const absl::Status status = choose(next + 1);
    chosen.pop_back();
    return status;
  };
  return choose(0);
}

absl::StatusOr<Part> JsonObjects::OfSchema(const DocumentPlace& schema) {
  COPPICE_ASSIGN_OR_RETURN(std::vector<Member> members, ReadMembers(schema));
  COPPICE_ASSIGN_OR_RETURN(Keys keys, ReadKeys(schema));
  bool refused = false;  // keys that are not listed are refused
  std::optional<DocumentPlace> other;
  if (Has(schema, "additionalProperties")) {
    const DocumentPlace additional = At(schema, "additionalProperties");
    refused = *additional.value == false;
    if (!additional.value->is_boolean()) other = additional;
  }
  static const OrderedJson* const any_value = new OrderedJson(true);
  const DocumentPlace any{any_value, schema.pointer};
  const bool patterned = !keys.patterns.empty();
  const bool by_name = patterned || !members.empty();
  if (by_name && keys.listed && keys.names.empty())
    return SchemaError(keys.pointer, "it is served for objects without keys of their own only");
  if (by_name && !keys.names.empty()) {
    COPPICE_ASSIGN_OR_RETURN(keys.allowed, KeysWith(keys.pointer, ExpressionOfAll(keys.names, {})));
  }

  std::vector<JsonRules::Member> listed;
  for (Member& member : members) {
    bool known = !member.schemas.empty();
    for (Pattern& pattern : keys.patterns) {
      if (!HasKey(&pattern.keys, member.key)) continue;
      member.schemas.push_back(pattern.schema);
      known = true;
    }
    if (!known && !refused) member.schemas.push_back(other.value_or(any));
    const bool allowed =
        (known || !refused) && (!keys.allowed || HasKey(&*keys.allowed, member.key));
    auto value = allowed ? schemas_.RuleOfAll(member.schemas) : NoValue(schema.pointer);
    if (!IsNoValue(value.status())) {
      COPPICE_RETURN_IF_ERROR(value.status());
      listed.push_back({member.key, member.required, *std::move(value)});
    } else if (member.required) {
      return SchemaError(
          PointerTo(schema.pointer, "required"),
          absl::StrCat("the key ", CompactJson(member.key), " is required, but not allowed"));
    }
  }
  std::vector<JsonRules::Other> others;
  const bool free = !refused && !Has(schema, "properties") && !patterned;
  if (patterned) {
    COPPICE_RETURN_IF_ERROR(AddPatterned(members, other, &keys, &others));
  } else if (other || free) {
    COPPICE_ASSIGN_OR_RETURN(Part value, schemas_.RuleOfAll({other.value_or(any)}));
    if (by_name && !keys.names.empty()) {
      std::vector<std::string> taken;
      for (const Member& member : members) taken.push_back(ExactExpression(member.key));
      COPPICE_ASSIGN_OR_RETURN(
          Part key, strings_.CharactersOf(keys.pointer, ExpressionOfAll(keys.names, taken)));
      others.push_back({Sequence({std::move(key), Literal("\"")}), std::move(value)});
    } else {
      others.push_back({std::nullopt, std::move(value)});
    }
  }
  COPPICE_ASSIGN_OR_RETURN(const CountLimits limits,
                           ReadLimits(schema, "minProperties", "maxProperties"));
  if (limits.there && (!members.empty() || others.empty())) {
    return SchemaError(schema.pointer,
                       "\"minProperties\" and \"maxProperties\" are served for objects without "
                       "keys of their own only");
  }
  if (!members.empty() || others.empty()) return rules_.ObjectOf(schema.pointer, listed, others);
  std::vector<Part> ways;
  for (const JsonRules::Other& one : others) {
    const Part key = one.key ? Sequence({Literal("\""), *one.key})
                             : keys.listed.value_or(rules_.StringOf(0, Expression::kNoMost));
    ways.push_back(rules_.MemberOf(key, one.value));
  }
  return rules_.ObjectOfAny(Choice(std::move(ways)), limits.least, limits.most);
}

}  // namespace coppice::grammar
