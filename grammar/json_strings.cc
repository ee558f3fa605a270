#include "grammar/json_strings.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "grammar/automaton.h"
#include "grammar/json_formats.h"
#include "grammar/regex.h"

namespace coppice::grammar {
namespace {

constexpr int kMostPatterns = 1000;  // patterns and formats of one schema

// A state of the automaton of the characters, with their number so far.
struct Counted {
  Automaton::State state = 0;
  int count = 0;
  bool escaped = false;  // the last byte was the backslash of an escape

  bool operator==(const Counted& other) const {
    return state == other.state && count == other.count && escaped == other.escaped;
  }
  template <typename H>
  friend H AbslHashValue(H h, const Counted& c) {
    return H::combine(std::move(h), c.state, c.count, c.escaped);
  }
};

bool Continues(int byte) { return (byte & 0xc0) == 0x80; }

Part AnyOf(std::vector<std::pair<uint8_t, uint8_t>> bytes) {
  auto part = std::make_shared<Expression>();
  part->kind = Expression::Kind::kByte;
  part->bytes = std::move(bytes);
  return part;
}

Part Quoted(Part characters) {
  return Sequence({Literal("\""), std::move(characters), Literal("\"")});
}

// "": the keyword is absent.
absl::StatusOr<std::string> TextOf(const DocumentPlace& schema, const char* keyword) {
  if (!Has(schema, keyword)) return std::string();
  const DocumentPlace place = At(schema, keyword);
  if (!place.value->is_string()) return SchemaError(place.pointer, "it must be a string");
  return place.value->get<std::string>();
}

constexpr int64_t kMostInPlace = 100;  // expressions of characters
constexpr absl::string_view kAnyCharacter = "[\\x{0}-\\x{10ffff}]";

std::string Whole(absl::string_view expression) { return absl::StrCat("^(?:", expression, ")$"); }

}  // namespace

std::string ExpressionOfAll(const std::vector<std::string>& must,
                            const std::vector<std::string>& must_not) {
  if (must.size() == 1 && must_not.empty()) return must[0];
  std::string all = "^";
  for (const std::string& one : must)
    absl::StrAppend(&all, "(?=", kAnyCharacter, "*(?:", one, "))");
  if (!must_not.empty())
    absl::StrAppend(&all, "(?!", kAnyCharacter, "*(?:(?:", absl::StrJoin(must_not, ")|(?:"), ")))");
  return absl::StrCat(all, kAnyCharacter, "*$");
}

bool IsNoText(const absl::Status& status) {
  return status.message() == "no text has the format";  // of Automaton::Make
}

absl::Status JsonStrings::Count(const std::string& pointer) {
  if (++patterns_ <= kMostPatterns) return absl::OkStatus();
  return SchemaError(pointer, "there are too many patterns and formats");
}

absl::StatusOr<Grammar> JsonStrings::ReadPattern(const std::string& pointer,
                                                 const std::string& expression) {
  COPPICE_RETURN_IF_ERROR(Count(pointer));
  return RegexGrammar(
      expression,
      {.search = true, .character = JsonCharacter, .condition_work = &left_.conditions});
}

absl::StatusOr<Part> JsonStrings::WithLength(const Grammar& characters, const CountLimits& limits) {
  const absl::Status too_large =
      absl::InvalidArgumentError("with the limits of the length the schema is too large");
  for (const Part& rule : characters.rules) left_.expressions -= CountExpressions(*rule);
  if (left_.expressions < 0) return too_large;
  COPPICE_ASSIGN_OR_RETURN(Automaton automaton, Automaton::Make(characters));
  const bool bounded = limits.most != Expression::kNoMost;
  const int counted = bounded ? limits.most : limits.least;  // more are not told apart
  absl::flat_hash_map<Counted, int> rule_of;
  std::deque<Counted> open;
  const auto rule = [&](const Counted& place) {
    const auto [known, added] = rule_of.try_emplace(place, 0);
    if (added) {
      known->second = rules_.Add("characters");
      --left_.rules;
      open.push_back(place);
    }
    return known->second;
  };
  const int first = rule({automaton.start(), 0, false});
  bool any = false;
  while (!open.empty()) {
    const Counted place = open.front();
    open.pop_front();
    if (left_.rules < 0 || left_.work < automaton.work()) return too_large;
    std::map<int, std::vector<std::pair<uint8_t, uint8_t>>> bytes_to;  // by the rule that follows
    for (int byte = 0; byte < 256; ++byte) {
      const Automaton::State next = automaton.Next(place.state, static_cast<uint8_t>(byte));
      if (next == Automaton::kDead) continue;
      const bool begins = !Continues(byte) && !place.escaped;
      if (begins && bounded && place.count == limits.most) continue;
      const int count = std::min(place.count + (begins ? 1 : 0), counted);
      auto& ranges = bytes_to[rule({next, count, begins && byte == '\\'})];
      if (!ranges.empty() && ranges.back().second + 1 == byte) {
        ranges.back().second = static_cast<uint8_t>(byte);
      } else {
        ranges.emplace_back(byte, byte);
      }
    }
    std::vector<Part> choices;
    if (automaton.Complete(place.state) && place.count >= limits.least) {
      choices.push_back(Sequence({}));
      any = true;
    }
    for (auto& [follows, bytes] : bytes_to)
      choices.push_back(Sequence({AnyOf(std::move(bytes)), Rule(follows)}));
    rules_.Set(rule_of[place], Choice(std::move(choices)));
  }
  left_.work -= automaton.work();
  if (automaton.refusals() > 0) return too_large;
  if (!any) return absl::InvalidArgumentError("no text of it has the required length");
  return Rule(first);
}

absl::StatusOr<Part> JsonStrings::CharactersOf(const std::string& pointer,
                                               const std::string& expression) {
  if (const auto known = known_.find(expression); known != known_.end()) {
    COPPICE_RETURN_IF_ERROR(Count(pointer));
    return known->second;
  }
  auto characters = ReadPattern(pointer, expression);
  if (!characters.ok()) return SchemaError(pointer, characters.status().message());
  Part part = rules_.Adopt(*std::move(characters));
  if (CountExpressions(*part) > kMostInPlace) {  // drawn once
    const int rule = rules_.Add("characters");
    rules_.Set(rule, std::move(part));
    part = Rule(rule);
  }
  return known_[expression] = std::move(part);
}

absl::StatusOr<std::vector<std::string>> JsonStrings::ExpressionsOf(const DocumentPlace& schema) {
  std::vector<std::string> expressions;
  COPPICE_ASSIGN_OR_RETURN(const CountLimits limits, ReadLimits(schema, "minLength", "maxLength"));
  COPPICE_ASSIGN_OR_RETURN(const std::string format, TextOf(schema, "format"));
  COPPICE_ASSIGN_OR_RETURN(const std::string pattern, TextOf(schema, "pattern"));
  if (IsStringFormat(format)) expressions.push_back(Whole(FormatExpression(format)));
  if (Has(schema, "pattern")) expressions.push_back(pattern);
  if (limits.there) {
    const bool bounded = limits.most != Expression::kNoMost;
    expressions.push_back(Whole(absl::StrCat(kAnyCharacter, "{", limits.least, ",",
                                             bounded ? absl::StrCat(limits.most) : "", "}")));
  }
  return expressions;
}

absl::StatusOr<Part> JsonStrings::OfSchema(const DocumentPlace& schema) {
  COPPICE_ASSIGN_OR_RETURN(CountLimits limits, ReadLimits(schema, "minLength", "maxLength"));
  COPPICE_ASSIGN_OR_RETURN(const std::string pattern, TextOf(schema, "pattern"));
  COPPICE_ASSIGN_OR_RETURN(const std::string format, TextOf(schema, "format"));
  const bool bound = IsStringFormat(format), patterned = Has(schema, "pattern");
  if (!format.empty() && !bound && annotations_ != nullptr)
    annotations_->push_back(PointerTo(schema.pointer, "format"));
  if (!patterned && !bound) return rules_.StringOf(limits.least, limits.most);
  const std::string pointer = PointerTo(schema.pointer, patterned ? "pattern" : "format");
  std::string expression = pattern;
  if (patterned && bound) {
    // The pattern alone, so that its faults are found.
    const auto alone = ReadPattern(pointer, pattern);
    if (!alone.ok()) return SchemaError(pointer, alone.status().message());
    expression = ExpressionOfAll({pattern, Whole(FormatExpression(format))}, {});
  } else if (bound) {
    const bool shortened = limits.most >= kLongestBounded;
    if (shortened) limits.most = Expression::kNoMost;
    limits.there = limits.there && (limits.least > 0 || limits.most != Expression::kNoMost);
    expression = Whole(FormatExpression(format, shortened));
  }
  if (!limits.there) {
    COPPICE_ASSIGN_OR_RETURN(Part characters, CharactersOf(pointer, expression));
    return Quoted(std::move(characters));
  }
  auto characters = ReadPattern(pointer, expression);
  if (!characters.ok()) return SchemaError(pointer, characters.status().message());
  auto counted = WithLength(*characters, limits);
  if (!counted.ok()) return SchemaError(pointer, counted.status().message());
  return Quoted(*std::move(counted));
}

}  // namespace coppice::grammar
