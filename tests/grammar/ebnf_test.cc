#include "grammar/ebnf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/grammar/texts.h"

namespace coppice::grammar {
namespace {

using Texts = std::vector<std::string>;

constexpr const char* kArithmetic = R"g(# sums of products
root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t]*
)g";

TEST(EbnfTest, TextsOfGrammars) {
  const struct {
    const char* grammar;
    Texts accepted, refused;
  } kCases[] = {
      {"root ::= \"yes\" | \"no\"", {"yes", "no"}, {"", "yesno", "y"}},
      {kArithmetic, {"a+1=3\n", "(a_1 *(2)) -b= 7\n1=1\n"}, {"a+=3\n", "1=1", ""}},
      {"other ::= \"b\"\nroot ::= \"a\" other", {"ab"}, {"a", "b"}},
      // Over lines.
      {"root ::=\n  \"a\" |\n  # more\n\n  \"b\"\n  | \"c\" # end\n\n\n# x\ntail ::= \"d\"\r\n",
       {"a", "b", "c"},
       {"d", ""}},
      {"root ::= (\n\"a\"\n\"b\"\n|\n\"c\"\n)\n", {"ab", "c"}, {"a", "abc"}},
      {"root ::= a-b_2 \"\"\na-b_2 ::= (\"x\" | )", {"x", ""}, {"xx"}},
      {"root ::= | \"a\"", {"", "a"}, {"aa"}},
      {"root ::= \"(\" root \")\" | \"\"", {"", "(())"}, {"(()"}},
      // Escapes.
      {R"g(root ::= "\n\t\r\\\"\x41\u20ac\U0001F600\[\]")g",
       {"\n\t\r\\\"A\xe2\x82\xac\xf0\x9f\x98\x80[]"},
       {""}},
      {R"g(root ::= "\xe4" "\ud83d\ude00")g", {"\xc3\xa4\xf0\x9f\x98\x80"}, {"\xe4"}},
      {R"g(root ::= [\]\-\^\\a-c\x30-\u0032]+)g", {"]-^\\abc012"}, {"d", "3", ""}},
      {R"g(root ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\"")g",
       {"\"\"", "\"a\\n\\u00e4\xc3\xa4\""},
       {"\"\\x\"", "\"\n\"", "\"\\u00e\""}},
      {"root ::= [-a] [a-] [^^]", {"-ab", "a--"}, {"b--", "aa^"}},
      {"root ::= . [#\"]  # comment \"", {"\n#", "\xe2\x82\xac\""}, {"#", "\xe2#"}},
      // Counts.
      {"root ::= \"a\"{2} \"b\"{1,} \"c\" {0,2} \"d\"? \"e\"+ \"f\" *",
       {"aabe", "aabbccdeeff"},
       {"abe", "aae", "aabccce", "aab"}},
      {"root ::= (\"a\" | \"b\"){2}+", {"ab", "abba"}, {"a", "aba", ""}},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.grammar);
    ExpectTexts(ReadEbnf(c.grammar), c.accepted, c.refused);
  }
}

TEST(EbnfTest, ErrorsNameTheLineOrTheRule) {
  const std::string deep = "root ::= " + std::string(300, '(') + "\"a\"" + std::string(300, ')');
  const struct {
    std::string grammar;
    const char* error;
  } kCases[] = {
      {"", "there is no rule root"},
      {"a ::= \"b\"", "there is no rule root"},
      {"root ::= a\n\nb ::= \"b\"", "line 1: there is no rule a"},
      {"root ::= \"a\"\nb ::= \"b\"\nb ::= \"c\"", "line 3: rule b is there twice"},
      {"root ::= \"a\" |\nb ::= \"b\"", "line 2: rule b begins where the one before it needs more"},
      {"root ::= \"a\"\nb = \"b\"", "line 2: '=' where ::= of rule b should be"},
      {"root", "line 1: the end where ::= of rule root should be"},
      {"root ::= \"a\"\n\"b\"", "line 2: '\"' where a rule should begin"},
      {"\nroot ::= \"a", "line 2: a \" without its end"},
      {"root ::= \"a\n\"", "line 1: a \" without its end"},
      {"root ::= [a", "line 1: a [ without its ]"},
      {"root ::= []", "line 1: a class without characters"},
      {"root ::= [z-a]", "line 1: a range that descends"},
      {"root ::= (\"a\"\n", "line 1: a ( without its )"},
      {"root ::= \"a\")", "line 1: a ) without its ("},
      {"root ::= \"a\" $", "line 1: '$' is unexpected"},
      {"root ::= * \"a\"", "line 1: '*' is unexpected"},
      {"root ::= \"a\"{,2}", "line 1: a { that is none of"},
      {"root ::= \"a\"{x}", "line 1: a { that is none of"},
      {"root ::= \"a\"{3,2}", "line 1: counts must ascend"},
      {"root ::= \"a\"{20000}", "line 1: counts must ascend and be at most 10000"},
      {"root ::= \"\\q\"", "line 1: the escape \\ before 'q' is not known"},
      {"root ::= \"\\x4\"", "line 1: \\x names no character"},
      {"root ::= \"\\ud800\"", "line 1: \\u names no character"},
      {"root ::= \"\\U00110000\"", "line 1: \\U names no character"},
      {"root ::= \"\xff\"", "line 1: not valid UTF-8"},
      {"root ::= \xff", "line 1: a byte that is not UTF-8 is unexpected"},
      {deep, "line 1: groups are nested too deep"},
  };
  for (const auto& c : kCases) {
    const auto grammar = ReadEbnf(c.grammar);
    EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument) << c.grammar;
    EXPECT_THAT(std::string(grammar.status().message()), testing::HasSubstr(c.error));
  }
}

TEST(EbnfTest, RulesThatBeginWithThemselvesAreNamed) {
  const struct {
    const char* grammar;
    const char* error;
  } kCases[] = {
      {"root ::= root \"a\" | \"b\"", "rule root begins with itself"},
      {"root ::= \"x\" a\na ::= b* a \"y\" | \"z\"\nb ::= \"b\"", "rule a begins with itself"},
      {"root ::= \"x\" | a\na ::= e e a | \"y\"\ne ::= f\nf ::= \"\" | \"f\"",
       "rule a begins with itself"},
      {"root ::= \"a\" root", "no text has the format"},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(MakeAutomaton(ReadEbnf(c.grammar)).status().message(), c.error);
  }
}

TEST(EbnfTest, ManyRulesInAChain) {
  std::string grammar = "root ::= r1\n";
  for (int i = 1; i < 10'000; ++i)
    grammar += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + "\n";
  ExpectTexts(ReadEbnf(grammar + "r10000 ::= \"a\"?\n"), {"a", ""}, {"aa"});
  EXPECT_THAT(
      std::string(MakeAutomaton(ReadEbnf(grammar + "r10000 ::= r9000 | \"a\"")).status().message()),
      testing::HasSubstr("begins with itself"));
}

TEST(EbnfTest, BrokenGrammarsDoNotCrash) {
  ExpectNoCrash(
      {kArithmetic, "root ::= a | \"\\u20ac\\x41\"{1,3} [^\\]a-z]\na ::= (\n\"x\" | . )? # e\n"},
      ReadEbnf);
}

}  // namespace
}  // namespace coppice::grammar
