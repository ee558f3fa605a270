#include "grammar/lark.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "grammar/compile.h"
#include "tests/grammar/texts.h"

namespace coppice::grammar {
namespace {

using Texts = std::vector<std::string>;

constexpr const char* kSums = R"g(
// sums of products
?start: sum
?sum: product
    | sum "+" product   -> add
    | sum "-" product   -> sub
?product: atom
    | product "*" atom  -> mul
    | product "/" atom  -> div
?atom: NUMBER           -> number
     | "-" atom         -> neg
     | NAME             -> var
     | "(" sum ")"
%import common.CNAME -> NAME
%import common.NUMBER
%import common.WS_INLINE
%ignore WS_INLINE
)g";

constexpr const char* kJson = R"g(
start: value   # any value
?value: object | array | ESCAPED_STRING | SIGNED_NUMBER | "true" | "false" | "null"
array  : "[" [value ("," value)*] "]"
object : "{" [pair ("," pair)*] "}"
pair   : ESCAPED_STRING ":" value
%import common (ESCAPED_STRING, SIGNED_NUMBER, WS)
%ignore WS
)g";

TEST(LarkTest, TextsOfGrammars) {
  const struct {
    const char* grammar;
    Texts accepted, refused;
  } kCases[] = {
      {"start: \"yes\" | \"no\"", {"yes", "no"}, {"", "yesno", "y"}},
      {kSums,
       {"1", "a+1-b*2", "-(x_1 + 2.5e3)*  3", "1 -2/ 3 "},
       {"", "1+", "*1", "1 2", "(1", "1\n", "1++2"}},
      {kJson,
       {"[]", "{\"a\": [1, -2.5e3, null],\n\"b\\\"\": {}} ", "true"},
       {"{", "[1,]", "{a:1}", "\"a\nb\"", "tru"}},
      // Terminals, ranges and flags.
      {"start: A b \"!\"i \"x\"i\nA: \"a\"..\"c\" \"1\"~2\nb: /[d-f]/ | B\nB.2: \"B\" | A",
       {"a11d!x", "c11B!X", "b11a11!x"},
       {"a1d!x", "d11d!x", "a11g!x"}},
      {"start: /a.\\/[^b]/is", {"a\n/c", "AB/x"}, {"ab/B", "ab/b"}},
      {"start: /\\p{Lu}+/ /x{2}/", {"\xc3\x84xx"}, {"axx", "\xc3\x84x"}},
      {R"g(start: "\n\t\r\f\\\"\x41\u20ac\U0001F600" "äß"i)g",
       {"\n\t\r\f\\\"A\xe2\x82\xac\xf0\x9f\x98\x80\xc3\xa4\xc3\x9f"},
       {""}},
      // Counts, groups, what may be left out, names of alternatives.
      {"start: (\"a\" | \"b\")~2..3 [\"c\" \"d\"] \"e\"? \"f\"* \"g\"+ -> one\n  | \"z\" -> two",
       {"abg", "aaacdeffgg", "bbcdg", "z"},
       {"ag", "aaaag", "abcg", "ab", "zz"}},
      {"!start: a\n\n?a.-1:\n  | \"x\"\n", {"", "x"}, {"xx"}},
      // Rules that begin with themselves.
      {"start: list\nlist: list \",\" item | item | list\nitem: \"i\"",
       {"i", "i,i,i"},
       {"", "i,", ",i"}},
      {"start: start \"a\" | start \"b\" | \"\"", {"", "abba"}, {"c"}},
      // What is ignored stands once after a terminal.
      {"start: A \"b\"\nA: \"a\" \"a\"\n%ignore \" \" | /#[^#]*#/\n",
       {"aab", "aa b", "aa#x#b "},
       {" aab", "a ab", "aa  b", "aa #x#b"}},
      // The dialect of guidance.
      {"%llguidance {}\n\nstart: answer\nanswer[capture, capture=\"a\"]: ANSWER\n\nANSWER: "
       "\"yes\"\n     "
       "| \"no\"\n\n",
       {"yes", "no"},
       {"", "yesno"}},
      {"start: \"<\" %json {\"type\": \"object\", \"required\": [\"}\"],\n \"properties\": "
       "{\"}\": {\"const\": 1}}} \">\"",
       {"<{\"}\": 1}>"},
       {"<{}>", "{\"}\": 1}"}},
      {"%import common.INT\n%import common.LETTER -> L\nstart: INT L", {"12a"}, {"a", "1"}},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.grammar);
    EXPECT_TRUE(IsLark(c.grammar));
    ExpectTexts(ReadFormat({FormatSpec::Kind::kGrammar, c.grammar}), c.accepted, c.refused);
  }
}

TEST(LarkTest, ImportedTerminals) {
  const struct {
    const char* name;
    Texts accepted, refused;
  } kCases[] = {
      {"DIGIT", {"0"}, {"00", "a"}},
      {"HEXDIGIT", {"f", "A"}, {"g"}},
      {"SIGNED_INT", {"-1", "+20", "3"}, {"1.0", "-"}},
      {"DECIMAL", {"1.", ".5", "1.5"}, {"1", "."}},
      {"FLOAT", {"1e5", "1.5E-3", ".5"}, {"1", "e5"}},
      {"SIGNED_FLOAT", {"-1e5", "+.5"}, {"-1"}},
      {"NUMBER", {"1", "1.5", "1e5", ".5"}, {"-1", ""}},
      {"SIGNED_NUMBER", {"-1", "1.5"}, {"--1"}},
      {"ESCAPED_STRING", {"\"\"", "\"a\\\"\\\\\""}, {"\"a\"b\"", "\"\\\"", "a"}},
      {"LCASE_LETTER", {"a"}, {"A"}},
      {"UCASE_LETTER", {"A"}, {"a"}},
      {"WORD", {"Ab"}, {"a1", ""}},
      {"CNAME", {"_a1"}, {"1a"}},
      {"WS_INLINE", {" \t"}, {"\n", ""}},
      {"WS", {" \n"}, {""}},
      {"CR", {"\r"}, {"\n"}},
      {"LF", {"\n"}, {"\r"}},
      {"NEWLINE", {"\n\r\n"}, {"\r"}},
      {"SH_COMMENT", {"# x"}, {"#\n"}},
      {"CPP_COMMENT", {"// x"}, {"/"}},
      {"C_COMMENT", {"/**/", "/* * / \n**/"}, {"/* */ */", "/*/"}},
      {"SQL_COMMENT", {"--x"}, {"-x"}},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.name);
    const std::string name = c.name;
    ExpectTexts(ReadLark("%import common." + name + "\nstart: " + name), c.accepted, c.refused);
  }
}

TEST(LarkTest, ErrorsNameTheLineOrTheRule) {
  const std::string deep = "start: " + std::string(300, '(') + "\"a\"" + std::string(300, ')');
  const struct {
    std::string grammar;
    const char* error;
  } kCases[] = {
      {"a: \"b\"", "there is no rule start"},
      {"start: a\n\nb: B", "line 1: there is no rule a"},
      {"start: \"a\"\nb: \"b\"\nb: \"c\"", "line 3: b is there twice"},
      {"start: \"a\" |\nb: \"b\"", "line 2: rule b begins where the one before it needs more"},
      {"start: \"a\"\nb = \"b\"", "line 2: '=' where : of rule b should be"},
      {"start: \"a\"\n\"b\"", "line 2: '\"' where a rule should begin"},
      {"\nstart: \"a", "line 2: a \" without its end"},
      {"start: \"a\\q\"", "line 1: an escape that names no character"},
      {"start: \"\\ud800\"", "line 1: an escape that names no character"},
      {"start: \"\xff\"", "line 1: not valid UTF-8"},
      {"start: /a", "line 1: a / without its end"},
      {"start: /a(/", "line 1: regular expression, byte 1: a ( without its )"},
      {"start: /^a/", "line 1: regular expression, byte 0: an anchor in this expression"},
      {"start: /a(?!b)/", "byte 1: look-ahead in this expression is not served"},
      {"start: /a/m", "line 1: the flag m is not served"},
      {"start: \"ab\"..\"c\"", "line 1: a range of more than characters"},
      {"start: \"c\"..\"a\"", "line 1: a range that descends"},
      {"start: \"a\"..b", "line 1: .. needs a character in quotes"},
      {"start: (\"a\"\n", "line 1: a ( without its )"},
      {"start: [\"a\"\n", "line 1: a [ without its ]"},
      {"start: \"a\")", "line 1: ')' is unexpected"},
      {"start: $", "line 1: '$' is unexpected"},
      {"start: \"a\" ~ x", "line 1: a ~ that is none of"},
      {"start: \"a\" ~ 3..2", "line 1: counts must ascend"},
      {"start: \"a\" ->", "line 1: -> needs a name"},
      {"start: x\nA: x\nx: \"x\"", "line 2: a terminal cannot have the rule x"},
      {"start.x: \"a\"", "line 1: a priority must be a number"},
      {"start: \"a\"\nsep{x}: x", "line 2: templates of rules are not served"},
      {"start: sep{A}", "line 1: templates of rules are not served"},
      {"start[capture, max_tokens=5]: \"a\"",
       "line 1: the attribute \"max_tokens\" of a rule is not served"},
      {"start[capture=x]: \"a\"", "line 1: a name to capture must be in quotes"},
      {"start[capture: \"a\"", "line 1: a [ without its ]"},
      {"%llguidance {\"x\":1}\nstart: \"a\"", "line 1: options of %llguidance are not served"},
      {"start: %json [1]", "line 1: %json needs an object"},
      {"start: %json {\"a\": \"}\"", "line 1: %json needs an object"},
      {"start: \n  | %json {\"not\": 1}", "line 2: JSON schema, #/not: the keyword"},
      {"start: %json {} %json {} %json {}", "line 1: more than 2 %json are not served"},
      {"start: <|end|>", "line 1: special tokens are not served"},
      {"start: \"a\"\n%declare A", "line 2: %declare is not served"},
      {"%import python.NAME\nstart: NAME", "line 1: only what is in `common` can be imported"},
      {"%import common.NAME\nstart: NAME", "line 1: `common` has no terminal NAME"},
      {"%import common.INT -> int\nstart: int", "line 1: a terminal has a name in capital letters"},
      {"%import common (INT\nstart: INT", "line 1: a ( without its )"},
      {deep, "line 1: groups are nested too deep"},
      {"start: a\na: b \"x\" | \"y\"\nb: a", "rule a begins with itself"},
  };
  for (const auto& c : kCases) {
    const auto automaton = MakeAutomaton(ReadLark(c.grammar));
    EXPECT_EQ(automaton.status().code(), absl::StatusCode::kInvalidArgument) << c.grammar;
    EXPECT_THAT(std::string(automaton.status().message()), testing::HasSubstr(c.error))
        << c.grammar;
  }
}

TEST(LarkTest, GrammarsOfGbnfAreNotThoseOfLark) {
  for (const char* grammar :
       {"root ::= \"a\"", "# x: y\nroot ::= \":\"", "", "\"a\": b", "root\n::= \"a\""})
    EXPECT_FALSE(IsLark(grammar)) << grammar;
}

TEST(LarkTest, BrokenGrammarsDoNotCrash) {
  ExpectNoCrash(
      {kSums, kJson,
       "start[capture]: %json {\"a\": {}} A~2..3 [/x\\/y/is]\nA.2: \"\\u20ac\"i | \"a\"..\"z\"\n"},
      [](absl::string_view text) { return ReadLark(text); });
}

}  // namespace
}  // namespace coppice::grammar
