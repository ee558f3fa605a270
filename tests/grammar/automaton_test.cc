#include "grammar/automaton.h"

#include <gtest/gtest.h>

#include <string>

#include "grammar/expression.h"

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

}  // namespace
}  // namespace coppice::grammar
