#include "grammar/json_rules.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grammar/json_document.h"
#include "tokenizer/utf8.h"

namespace coppice::grammar {
namespace {

constexpr int kMostIndent = 20;
constexpr int kMostDigits = 16;
constexpr int kMostExponent = 2;
constexpr int kNone = Expression::kNoMost;

// All characters of a string are plain except these.
CodePoints Unplain() { return {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}}; }

Part Digit() { return Character({{'0', '9'}}); }
Part HexDigit() { return Character({{'0', '9'}, {'a', 'f'}, {'A', 'F'}}); }

// The characters after \u: one that is not a surrogate, or a pair of surrogates.
Part HexCharacter() {
  const Part two = Repeat(HexDigit(), 2, 2);
  const Part d = Character({{'d', 'd'}, {'D', 'D'}});
  const Part not_d = Character({{'0', '9'}, {'a', 'c'}, {'A', 'C'}, {'e', 'f'}, {'E', 'F'}});
  return Choice({
      Sequence({not_d, HexDigit(), two}),
      Sequence({d, Character({{'0', '7'}}), two}),
      Sequence({d, Character({{'8', '9'}, {'a', 'b'}, {'A', 'B'}}), two, Literal("\\u"), d,
                Character({{'c', 'f'}, {'C', 'F'}}), two}),
  });
}

// A whole number without sign and leading zeros.
Part Whole() {
  return Choice(
      {Literal("0"), Sequence({Character({{'1', '9'}}), Repeat(Digit(), 0, kMostDigits - 1)})});
}

}  // namespace

Part JsonCharacter(CodePoints ranges) {
  constexpr std::pair<uint32_t, absl::string_view> kEscapes[] = {
      {'"', "\\\""}, {'\\', "\\\\"}, {'\b', "\\b"}, {'\f', "\\f"},
      {'\n', "\\n"}, {'\r', "\\r"},  {'\t', "\\t"}};
  std::vector<Part> choices;
  for (const auto& [character, escape] : kEscapes) {
    const bool there = std::any_of(ranges.begin(), ranges.end(), [c = character](const auto& r) {
      return r.first <= c && c <= r.second;
    });
    if (there) choices.push_back(Literal(escape));
  }
  CodePoints others = Others(std::move(ranges));
  const CodePoints unplain = Unplain();
  others.insert(others.end(), unplain.begin(), unplain.end());
  choices.push_back(CharacterNot(std::move(others)));
  return Choice(std::move(choices));
}

int JsonRules::Add(std::string name) {
  grammar_.names.push_back(std::move(name));
  grammar_.rules.push_back(nullptr);
  return static_cast<int>(grammar_.rules.size()) - 1;
}

template <typename MakePart>
Part JsonRules::Once(std::optional<int>* rule, absl::string_view name, MakePart make) {
  if (!rule->has_value()) {
    *rule = Add(std::string(name));
    Set(**rule, make());
  }
  return Rule(**rule);
}

Part JsonRules::Colon() {
  return blanks_ == Blanks::kSingle ? Literal(": ") : Sequence({Literal(":"), Space()});
}

Part JsonRules::Comma() {
  return blanks_ == Blanks::kSingle ? Literal(", ") : Sequence({Literal(","), Space()});
}

Part JsonRules::Space() {
  if (blanks_ == Blanks::kSingle) return Sequence({});
  return Once(&space_, "white space", [] {
    const Part indent = Repeat(Character({{' ', ' '}, {'\t', '\t'}}), 0, kMostIndent);
    return Choice({Sequence({}), Literal(" "), Sequence({Literal("\n"), indent})});
  });
}

Part JsonRules::StringCharacter() {
  return Once(&character_, "character", [this] {
    CodePoints letters = {{'"', '"'}, {'\\', '\\'}, {'b', 'b'}, {'f', 'f'},
                          {'n', 'n'}, {'r', 'r'},   {'t', 't'}};
    if (notation_ == Notation::kJson) letters.emplace_back('/', '/');
    const Part escape = Choice({Character(letters), Sequence({Literal("u"), HexCharacter()})});
    return Choice({CharacterNot(Unplain()), Sequence({Literal("\\"), escape})});
  });
}

Part JsonRules::StringOf(int least, int most) {
  return Sequence({Literal("\""), Repeat(StringCharacter(), least, most), Literal("\"")});
}

Part JsonRules::Number() {
  return Once(&number_, "number", [] {
    const Part sign = Character({{'+', '+'}, {'-', '-'}});
    const Part e = Character({{'e', 'e'}, {'E', 'E'}});
    return Sequence({Optional(Literal("-")), Whole(),
                     Optional(Sequence({Literal("."), Repeat(Digit(), 1, kMostDigits)})),
                     Optional(Sequence({e, Optional(sign), Repeat(Digit(), 1, kMostExponent)}))});
  });
}

Part JsonRules::Integer() {
  return Once(&integer_, "integer", [] {
    const Part digits = Sequence({Character({{'1', '9'}}), Repeat(Digit(), 0, kMostDigits - 1)});
    return Choice({Literal("0"), Sequence({Optional(Literal("-")), digits})});
  });
}

Part JsonRules::Constant(const OrderedJson& value) {
  const bool python = notation_ == Notation::kPython;
  if (python && value.is_null()) return Literal("None");
  if (python && value.is_boolean()) return Literal(value.get<bool>() ? "True" : "False");
  return Literal(CompactJson(value));
}

Part JsonRules::Value() {
  // The rule exists before its parts, because they need it.
  if (!value_.has_value()) {
    value_ = Add("value");
    Set(*value_, Choice({Object(), Array(), StringOf(0, kNone), Number(), Constant(true),
                         Constant(false), Constant(nullptr)}));
  }
  return Rule(*value_);
}

Part JsonRules::Object() {
  return Once(&object_, "object",
              [this] { return ObjectOfAny(MemberOf(StringOf(0, kNone), Value()), 0, kNone); });
}

Part JsonRules::Array() {
  return Once(&array_, "array", [this] { return ArrayOf("array", {}, Value(), 0, kNone); });
}

Part JsonRules::Listed(const Part& item, absl::string_view end, int least, int most) {
  if (most == 0) return Sequence({Space(), Literal(end)});
  const Part next = Sequence({Comma(), item});
  const Part some = Sequence(
      {Space(), item, Repeat(next, std::max(least - 1, 0), most == kNone ? kNone : most - 1),
       Space(), Literal(end)});
  if (least > 0) return some;
  return Choice({Sequence({Space(), Literal(end)}), some});
}

Part JsonRules::MemberOf(const Part& key, const Part& value) {
  return Sequence({key, Colon(), value});
}

Part JsonRules::ObjectOfAny(const Part& member, int least, int most) {
  return Sequence({Literal("{"), Listed(member, "}", least, most)});
}

// The rules are a chain, so that no part is nested as deep as there are members:
//   keys i: what stands after the first quote of a key, if the members before i are passed
//   rest i: what stands after a value, then
Part JsonRules::ObjectOf(absl::string_view name, const std::vector<Member>& members,
                         const std::vector<Other>& others) {
  const size_t count = members.size();
  std::vector<int> keys, rest;
  for (size_t i = 0; i <= count; ++i) {
    keys.push_back(Add(absl::StrCat(name, " key ", i)));
    rest.push_back(Add(absl::StrCat(name, " rest ", i)));
  }
  const Part colon = Colon();
  bool may_end = true, may_go_on = !others.empty();
  for (size_t i = count + 1; i-- > 0;) {
    std::vector<Part> choices;
    if (i < count) {
      const std::string key = CompactJson(members[i].key).substr(1);
      choices.push_back(Sequence({Literal(key), colon, members[i].value, Rule(rest[i + 1])}));
      if (!members[i].required && may_go_on) choices.push_back(Rule(keys[i + 1]));
      may_go_on = true;
      may_end = may_end && !members[i].required;
    } else {
      for (const Other& other : others) {
        choices.push_back(Sequence({other.key ? *other.key : OtherKey(name, members), colon,
                                    other.value, Rule(rest[count])}));
      }
    }
    Set(keys[i], Choice(std::move(choices)));
    std::vector<Part> ways;
    if (may_end) ways.push_back(Sequence({Space(), Literal("}")}));
    if (may_go_on) ways.push_back(Sequence({Comma(), Literal("\""), Rule(keys[i])}));
    Set(rest[i], Choice(std::move(ways)));
  }
  std::vector<Part> ways;
  if (may_end) ways.push_back(Literal("}"));
  if (may_go_on) ways.push_back(Sequence({Literal("\""), Rule(keys[0])}));
  return Sequence({Literal("{"), Space(), Choice(std::move(ways))});
}

// A tree of the members' keys. At each node the text may continue with a character that leads to no
// child, or end where no key ends. A node is a rule.
Part JsonRules::OtherKey(absl::string_view name, const std::vector<Member>& members) {
  struct TreeNode {
    std::map<uint32_t, int> children;
    bool ends = false;
    int rule = 0;
  };
  std::vector<TreeNode> nodes(1);
  for (const Member& member : members) {
    int node = 0;
    for (absl::string_view left = member.key; !left.empty();) {
      const tokenizer::Utf8Char c = tokenizer::NextUtf8Char(left);
      left.remove_prefix(c.length);
      const auto [child, added] =
          nodes[node].children.try_emplace(c.code_point, static_cast<int>(nodes.size()));
      node = child->second;
      if (added) nodes.emplace_back();
    }
    nodes[node].ends = true;
  }
  for (TreeNode& node : nodes) node.rule = Add(absl::StrCat(name, " other key"));
  const int any = Add(absl::StrCat(name, " rest of another key"));
  Set(any, Sequence({Repeat(CharacterNot(Unplain()), 0, kNone), Literal("\"")}));
  for (const TreeNode& node : nodes) {
    std::vector<Part> choices;
    CodePoints leaving = Unplain();
    for (const auto& [character, child] : node.children) {
      leaving.emplace_back(character, character);
      const bool plain = character >= 0x20 && character != '"' && character != '\\';
      const Part one = Character({{character, character}});
      if (plain) choices.push_back(Sequence({one, Rule(nodes[child].rule)}));
    }
    choices.push_back(Sequence({CharacterNot(std::move(leaving)), Rule(any)}));
    if (!node.ends) choices.push_back(Literal("\""));
    Set(node.rule, Choice(std::move(choices)));
  }
  return Rule(nodes[0].rule);
}

Part JsonRules::ArrayOf(absl::string_view name, const std::vector<Part>& first, const Part& other,
                        int least, int most) {
  const auto bounded = [most](size_t count) {
    return most == kNone ? count : std::min(count, static_cast<size_t>(most));
  };
  const size_t count = bounded(first.size());
  const auto left = [count](int limit) { return std::max(limit - static_cast<int>(count), 0); };
  const int more = most == kNone ? kNone : left(most);
  if (count == 0) return Sequence({Literal("["), Listed(other, "]", least, most)});
  // A chain of rules: the text after item i.
  std::vector<int> rest;
  for (size_t i = 0; i < count; ++i) rest.push_back(Add(absl::StrCat(name, " after item ", i)));
  const Part comma = Comma();
  const Part end = Sequence({Space(), Literal("]")});
  Set(rest[count - 1], Sequence({Repeat(Sequence({comma, other}), left(least), more), end}));
  for (size_t i = count - 1; i-- > 0;) {
    std::vector<Part> ways = {Sequence({comma, first[i + 1], Rule(rest[i + 1])})};
    if (static_cast<int>(i) + 1 >= least) ways.push_back(end);
    Set(rest[i], Choice(std::move(ways)));
  }
  std::vector<Part> ways = {Sequence({first[0], Rule(rest[0])})};
  if (least == 0) ways.push_back(Literal("]"));
  return Sequence({Literal("["), Space(), Choice(std::move(ways))});
}

}  // namespace coppice::grammar
