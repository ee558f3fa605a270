// Structural tags against texts that they must have and refuse, against a second implementation of
// their languages, and with the special tokens of a vocabulary.
#include "grammar/structural_tag.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grammar/compile.h"
#include "tests/grammar/texts.h"
#include "tests/testing/language.h"

namespace coppice::grammar {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<Grammar> Read(const std::string& format) {
  return ReadStructuralTag(absl::StrCat(R"({"type":"structural_tag","format":)", format, "}"),
                           nullptr);
}

// Special tokens as an automaton reads them.
std::string Special(const std::string& name) { return absl::StrCat("\xff", name); }

TEST(StructuralTagTest, PartsAndTheirOrder) {
  ExpectTexts(Read(R"({"type":"sequence","elements":[
                {"type":"const_string","value":"a"},
                {"type":"optional","content":{"type":"const_string","value":"b"}},
                {"type":"or","elements":[{"type":"regex","pattern":"[0-9]{2}"},
                                         {"type":"json_schema","json_schema":{"type":"null"}}]},
                {"type":"star","content":{"type":"const_string","value":"s"}},
                {"type":"plus","content":{"type":"token","token":"<p>"}}]})"),
              {"ab12" + Special("<p>"), "anullss" + Special("<p>") + Special("<p>")},
              {"ab12", "ab1" + Special("<p>"), "b12" + Special("<p>"), "ab12<p>"});
  ExpectTexts(
      Read(R"({"type":"grammar","grammar":"root ::= \"x\" tail\ntail ::= \"y\" tail | \"z\""})"),
      {"xz", "xyyz"}, {"x", "xy", "z"});
}

TEST(StructuralTagTest, SchemasHaveTheirOwnRoots) {
  const std::string schema =
      R"({"type":"object","properties":{"v":{"$ref":"#/$defs/x"},"next":{"$ref":"#"}},
          "required":["v"],"additionalProperties":false,"$defs":{"x":{"enum":[1,2]}}})";
  const std::string tag =
      absl::StrCat(R"({"type":"tag","begin":"<a>","content":{"type":"json_schema",
      "json_schema":)",
                   schema, R"(},"end":"</a>"})");
  ExpectTexts(Read(absl::StrCat(R"({"type":"sequence","elements":[)", tag, ",", tag, "]}")),
              {R"(<a>{"v":1}</a><a>{"v":2, "next":{"v":1}}</a>)"},
              {R"(<a>{"v":3}</a><a>{"v":2}</a>)", R"(<a>{"v":1}</a>)", R"({"v":1}{"v":1})"});
}

TEST(StructuralTagTest, TriggersBeginTags) {
  const auto tags = [](const std::string& more) {
    return Read(absl::StrCat(R"({"type":"triggered_tags","triggers":["<f="],"tags":[
        {"begin":"<f=a>","content":{"type":"regex","pattern":"[0-9]+"},"end":"</f>"},
        {"begin":"<f=b>","content":{"type":"const_string","value":""},"end":["</f>","!"]}])",
                             more, "}"));
  };
  ExpectTexts(tags(""),
              {"", "text", "< f=", "<f", "<<f=a>1</f>", "x<f=a>12</f>y<f=b></f><f=b>!",
               "any \x80\xff bytes", Special("<eos>")},
              {"<f=", "<f=c>", "<f=a></f>", "<f=a>1", "x<f=a>1</f><f=", "<f=b>?"});
  ExpectTexts(tags(R"(,"at_least_one":true)"), {"<f=b>!", "a<f=b>!z<f=b>!"}, {"", "text"});
  ExpectTexts(tags(R"(,"stop_after_first":true)"), {"", "t", "t<f=b>!"},
              {"<f=b>!t", "<f=b>!<f=b>!"});
}

TEST(StructuralTagTest, TagsWithSeparators) {
  const auto tags = [](const std::string& more) {
    return Read(absl::StrCat(R"x({"type":"tags_with_separator","tags":[
        {"begin":"(","content":{"type":"any_text"},"end":")"}],"separator":", ")x",
                             more, "}"));
  };
  ExpectTexts(tags(""), {"", "(a)", "(a), (b), ()"}, {"(a)(b)", "(a), ", "(a))"});
  ExpectTexts(tags(R"(,"at_least_one":true)"), {"(a)", "(a), (b)"}, {""});
  ExpectTexts(tags(R"(,"stop_after_first":true)"), {"", "(a)"}, {"(a), (b)"});
}

TEST(StructuralTagTest, AnyTextLeavesOut) {
  ExpectTexts(Read(R"({"type":"any_text","excludes":["aab",{"type":"token","token":"[T]"}]})"),
              {"", "aa", "abab", "[T]", Special("[U]")}, {"aab", "aaab", "xaabx", Special("[T]")});
  ExpectTexts(
      Read(R"x({"type":"any_text","excludes":["<c>"],"not_begins":["{\"n\"", "[f(", "[g("]})x"),
      {"", "{", "{\"n", "{\"m\"", "[f", "[h(", "x{\"n\"", "{\"n!"},
      {"{\"n\"", "[f(", "[g(1)", "x<c>", "[<c>"});
}

TEST(StructuralTagTest, PythonArguments) {
  ExpectTexts(Read(R"x({"type":"tag","begin":"f(","end":")","content":{"type":"python_arguments",
      "json_schema":{"type":"object","properties":{"a":{"type":"integer"},
        "b":{"anyOf":[{"type":"boolean"},{"type":"null"},{"enum":["x", true]}]},
        "c":{"$ref":"#/$defs/l"},"not-a-name":{}},
        "required":["b"],"$defs":{"l":{"type":"array","items":{}}}}}})x"),
              {"f(b=True)", "f(a=1, b=None)", "f(b=\"x\", c=[1, {\"k\": False}])"},
              {"f()", "f(a=1)", "f(b=true)", "f(a=1b=True)", "f(b=True, a=1)", "f(b=True, )",
               "f(b=None, c=[\"\\/\"])"});
}

TEST(StructuralTagTest, SingleWhiteSpace) {
  const auto read = [](const char* blanks) {
    return ReadStructuralTag(
        absl::StrCat(R"({"whitespace":)", blanks, R"(,"format":{"type":"json_schema","json_schema":
          {"type":"object","properties":{"a":{"type":"array","items":{"enum":[1,2]}},
           "b":{}}}}})"),
        nullptr);
  };
  ExpectTexts(read("\"single\""), {"{}", R"({"a": [1, 2], "b": {"x": [null, {}]}})"},
              {R"({"a":[1, 2]})", R"({"a": [1,2]})", R"({ "a": []})", "{\"a\": [\n]}",
               R"({"b": {"x":1}})"});
  ExpectTexts(read("\"any\""), {R"({"a":[1, 2]})", R"({ "a": [1,2] })"}, {});
  EXPECT_FALSE(read("1").ok());
}

TEST(StructuralTagTest, ErrorsNameThePlace) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"type":"tag","begin":"a","content":{"type":"regex","pattern":"["},"end":"b"})",
       "#/format/content"},
      {R"({"type":"other"})", "#/format/type: \"other\" is no type of a format"},
      {R"({"type":"sequence","elements":[]})", "#/format/elements: it must be a list"},
      {R"({"type":"const_string"})", "\"value\" is missing"},
      {R"({"type":"const_string","value":"a","more":1})", "#/format/more"},
      {R"({"type":"json_schema","json_schema":{"type":"nil"}})", "#/format/json_schema/type"},
      {R"({"type":"triggered_tags","triggers":["<a"],"tags":[{"begin":"b","content":
          {"type":"any_text"},"end":"c"}]})",
       "it begins with no trigger"},
      {R"({"type":"any_text","excludes":[""]})", "it must not be empty"},
      {R"({"type":"any_text","excludes":[{"type":5}]})", "an object of type"},
      {R"({"type":"tag","begin":"a","content":{"type":1},"end":"b"})", "#/format/content/type"},
      {R"({"type":"tag","begin":"a","content":[],"end":"b"})", "it must be an object"},
      {R"({"type":"triggered_tags","triggers":["<"],"tags":[{"type":3,"begin":"<","content":
          {"type":"any_text"},"end":"c"}]})",
       "it must be \"tag\""},
      {R"({"type":"sequence","elements":[{"type":"python_arguments","json_schema":{}},
          {"type":"json_schema","json_schema":{}}]})",
       "#/format/elements/1"},
  };
  for (const auto& [format, what] : cases) {
    const auto grammar = Read(format);
    ASSERT_FALSE(grammar.ok()) << format;
    EXPECT_THAT(std::string(grammar.status().message()), HasSubstr(what));
  }
  const auto large = MakeAutomaton(Read(absl::StrCat(R"({"type":"any_text","excludes":[")",
                                                     std::string(kMostExcluded + 1, 'a'), "\"]}")));
  EXPECT_THAT(std::string(large.status().message()), HasSubstr("too long"));
}

TEST(StructuralTagTest, BrokenTextsAreErrors) {
  ExpectNoCrash({R"({"type":"triggered_tags","triggers":["<f="],"tags":[{"begin":"<f=a>","content":
                    {"type":"json_schema","json_schema":{"type":"object"}},"end":"</f>"}]})",
                 R"({"type":"any_text","excludes":["ab"],"not_begins":["c","cd"]})"},
                Read);
}

// Texts of a small alphabet, so that most of them touch a mark.
TEST(StructuralTagTest, HasTheTextsOfASecondImplementation) {
  for (const char* format :
       {R"({"type":"any_text","excludes":["aba","bb"]})",
        R"({"type":"any_text","excludes":["cc"],"not_begins":["ab","abc","ba"]})",
        R"({"type":"triggered_tags","triggers":["ab","ba"],"tags":[
            {"begin":"abc","content":{"type":"any_text"},"end":"ca"},
            {"begin":"ba","content":{"type":"star","content":{"type":"const_string","value":"c"}},
             "end":"b"}]})"}) {
    const auto grammar = Read(format);
    ASSERT_TRUE(grammar.ok()) << grammar.status();
    const test::Language language(*grammar);
    auto automaton = *Automaton::Make(*grammar);
    int has = 0;
    std::vector<std::string> texts = {""};
    for (size_t i = 0; i < texts.size() && texts[i].size() < 7; ++i) {
      for (const char c : {'a', 'b', 'c'}) texts.push_back(texts[i] + c);
    }
    for (const std::string& text : texts) {
      ASSERT_EQ(HasText(&automaton, text), language.Has(text)) << format << " " << text;
      has += language.Has(text) ? 1 : 0;
    }
    EXPECT_GT(has, 100);
    EXPECT_LT(has, static_cast<int>(texts.size()) - 100);
  }
}

// A vocabulary without a token for each byte: fixed texts need one, any text does not.
TEST(StructuralTagTest, AnyTextNeedsNoBytesOfTheirOwn) {
  std::bitset<256> writable;
  for (const char c : std::string("ab<>")) writable.set(static_cast<unsigned char>(c));
  const auto make = [&writable](const std::string& format) {
    return Automaton::Make(*Read(format), writable);
  };
  auto any = make(R"({"type":"any_text","excludes":["q"]})");
  ASSERT_TRUE(any.ok());
  EXPECT_TRUE(HasText(&*any, "xyz"));
  EXPECT_FALSE(HasText(&*any, "xyzq"));
  EXPECT_TRUE(make(R"({"type":"token","token":"xyz"})").ok());
  EXPECT_FALSE(make(R"({"type":"const_string","value":"xyz"})").ok());
}

}  // namespace
}  // namespace coppice::grammar
