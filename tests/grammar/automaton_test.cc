#include "grammar/automaton.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "grammar/ebnf.h"
#include "grammar/expression.h"
#include "grammar/json_schema.h"

namespace coppice::grammar {
namespace {

bool Has(Automaton* automaton, absl::string_view text) {
  Automaton::State state = automaton->start();
  for (const char c : text) state = automaton->Next(state, static_cast<uint8_t>(c));
  return state >= 0 && automaton->Complete(state);
}

Grammar One(Part part) { return {{std::move(part)}, {"root"}}; }

TEST(AutomatonTest, RulesCallThemselves) {
  // root ::= "(" root ")" root | ""
  const Part root =
      Choice({Sequence({Literal("("), Rule(0), Literal(")"), Rule(0)}), Sequence({})});
  auto automaton = Automaton::Make(One(root));
  ASSERT_TRUE(automaton.ok()) << automaton.status();
  for (const char* text : {"", "()", "(())()", "((()()))"})
    EXPECT_TRUE(Has(&*automaton, text)) << text;
  for (const char* text : {"(", ")", "())", "(()"}) EXPECT_FALSE(Has(&*automaton, text)) << text;
}

TEST(AutomatonTest, CharactersAreUtf8) {
  auto automaton = Automaton::Make(One(Character({{'a', 'z'}, {0x7f0, 0x10405}})));
  ASSERT_TRUE(automaton.ok());
  EXPECT_TRUE(Has(&*automaton, "q"));
  EXPECT_TRUE(Has(&*automaton, "\xe2\x82\xac"));
  EXPECT_TRUE(Has(&*automaton, "\xf0\x90\x90\x85"));
  EXPECT_FALSE(Has(&*automaton, "\xf0\x90\x90\x86"));
  EXPECT_FALSE(Has(&*automaton, "\xed\xa0\x80"));  // a surrogate
  EXPECT_FALSE(Has(&*automaton, "\xc3\xa4"));
}

// What would occupy a node is refused before it is served.
TEST(AutomatonTest, GrammarsThatTakeTooMuchAreRefused) {
  std::string text = "root ::= r0\n";  // 2^24 ways to the first byte
  for (int i = 0; i < 24; ++i)
    absl::StrAppend(&text, "r", i, " ::= r", i + 1, " \"a\" | r", i + 1, " \"b\"\n");
  absl::StrAppend(&text, "r24 ::= \"x\"\n");
  const auto ways = Automaton::Make(ReadEbnf(text).value());
  EXPECT_EQ(ways.status().message(), "too many ways lead to the first byte of a text");
  EXPECT_FALSE(ReadEbnf("root ::= \"a\"" + std::string(15'000, '*')).ok());
  EXPECT_TRUE(ReadEbnf("root ::= \"a\"" + std::string(100, '*')).ok());
  Part deep = Literal("a");
  for (int i = 0; i < 10'000; ++i) deep = Optional(Sequence({deep, Literal("b")}));
  EXPECT_EQ(Automaton::Make(One(deep)).status().message(), "the format is nested too deeply");
}

// Bytes that no rule tells apart move alike: one entry for a state.
TEST(AutomatonTest, StatesOfLongTextsAreSmall) {
  auto automaton =
      Automaton::Make(ReadJsonSchema(R"({"type": "string", "maxLength": 20000})").value());
  ASSERT_TRUE(automaton.ok()) << automaton.status();
  Automaton::State state = automaton->start();
  const size_t before = automaton->bytes();
  for (const char c : "\"" + std::string(15'000, 'e')) {
    state = automaton->Next(state, static_cast<uint8_t>(c));
    ASSERT_GE(state, 0);
  }
  EXPECT_EQ(automaton->refusals(), 0);
  EXPECT_LT(automaton->bytes() - before, 15'000u * 600);
}

// The names of rules are pointers into the schema: a long key must not be in each of thousands.
TEST(AutomatonTest, LongKeysOfASchemaAreNamedOnce) {
  std::string schema = R"({"type": "object", "properties": {")" + std::string(50'000, 'k') +
                       R"(": {"type": "object", "properties": {)";
  for (int i = 0; i < 1900; ++i) absl::StrAppend(&schema, i > 0 ? "," : "", "\"", i, "\": {}");
  const auto grammar = ReadJsonSchema(schema + "}}}}");
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  size_t bytes = 0;
  for (const std::string& name : grammar->names) bytes += name.size();
  EXPECT_LT(bytes, 1u << 20);
}

}  // namespace
}  // namespace coppice::grammar
