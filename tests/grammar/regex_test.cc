#define PCRE2_CODE_UNIT_WIDTH 8
#include "grammar/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pcre2.h>
#include <utf8proc.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "grammar/unicode_property.h"
#include "tests/grammar/texts.h"
#include "tokenizer/utf8.h"

namespace coppice::grammar {
namespace {

using Texts = std::vector<std::string>;

TEST(RegexTest, TextsOfPatterns) {
  const struct {
    const char* pattern;
    Texts accepted, refused;
  } kCases[] = {
      {"", {""}, {"a", " "}},
      {"abc", {"abc"}, {"", "ab", "abcd", "xabc"}},
      {"^abc$", {"abc"}, {"^abc$", "ab"}},
      {"^a$|^b|c$", {"a", "b", "c"}, {"ab", "", "bc"}},
      {"a|", {"a", ""}, {"aa"}},
      {"a.c",
       {"abc", "a.c",
        "a\xc3\xa4"
        "c",
        "a\xf0\x9f\x98\x80"
        "c"},
       {"a\nc", "ac",
        "a\xc3"
        "c"}},
      {"[a-cx]+", {"a", "abcx"}, {"", "d", "a-"}},
      {"[^a-c]", {"d", "\n", "\xe2\x82\xac"}, {"a", "b", "", "dd"}},
      {"[a\\-\\]^.]*", {"a-]^.", ""}, {"b", "\\"}},
      {"[-a]", {"-", "a"}, {"b"}},
      {"[a-]", {"-", "a"}, {"b"}},
      {"[\\d_]{2}", {"12", "_0"}, {"1", "1a", "123"}},
      {"[\\D]", {"a"}, {"1"}},
      {"\\d\\w\\s", {"1_ ", "0a\n", "9Z\x0b"}, {"a_ ", "1- ", "1__"}},
      {"\\D\\W\\S", {"a-x", "\xc3\xa4 1"}, {"1-x", "aax", "a- "}},
      {"\\n\\t\\r\\f\\v", {"\n\t\r\f\v"}, {"ntrfv"}},
      {"\\0", {std::string(1, '\0')}, {"0", ""}},
      {"\\x41\\x{20AC}\\u00e4\\u{1F600}", {"A\xe2\x82\xac\xc3\xa4\xf0\x9f\x98\x80"}, {"A"}},
      {"\\ud83d\\ude00", {"\xf0\x9f\x98\x80"}, {"\xed\xa0\xbd\xed\xb8\x80"}},
      {"\\.\\*\\(\\)\\[\\{\\}\\/\\ \\\\\\^\\$\\|", {".*()[{}/ \\^$|"}, {""}},
      {"(a)(?:b)(?<n>c)(?P<n_2>d)", {"abcd"}, {"abc"}},
      {"(ab|c)*", {"", "abc", "cab", "cc"}, {"a", "ba"}},
      {"a?b+c*", {"b", "ab", "abbcc"}, {"a", "ac", ""}},
      {"a??b+?c*?d{1,2}?", {"bd", "abcdd"}, {"ad", "bddd"}},
      {"a{2}", {"aa"}, {"a", "aaa"}},
      {"a{2,}", {"aa", "aaaaa"}, {"a"}},
      {"a{1,3}", {"a", "aaa"}, {"", "aaaa"}},
      {"a{,2}", {"", "aa"}, {"aaa", "a{,2}"}},
      {"a{0}b", {"b"}, {"ab"}},
      {"(a{2}){3}", {"aaaaaa"}, {"aaaa"}},
      {"(|a)*b", {"b", "aab"}, {""}},
      {"{\"a\": [0-9]}", {"{\"a\": 1}"}, {"\"a\": 1"}},
      {"a{,}b{}c{x}", {"a{,}b{}c{x}"}, {"abc"}},
      {"]}", {"]}"}, {""}},
      {"\xc3\xa4+", {"\xc3\xa4", "\xc3\xa4\xc3\xa4"}, {"\xc3\xa4\xa4", "\xc3"}},
      {"[\xc3\xa4-\xc3\xb6]", {"\xc3\xa5"}, {"\xc3\xbc", "\xc3"}},
      // Conditions.
      {"a(?=b).", {"ab"}, {"ac", "a"}},
      {"a(?!b).*", {"a", "ac", "acb"}, {"ab", "abc"}},
      {"(^a|b)+", {"a", "ab", "bb"}, {"aa", "ba"}},
      {"(a$|b)+", {"a", "ba", "bb"}, {"ab", "aa"}},
      {"(?!yes$|no$)[a-z]+", {"maybe", "yess", "n"}, {"yes", "no", ""}},
      {"^(?=.*[a-z])(?=.*[A-Z])(?=.*\\d)[A-Za-z\\d]{4,6}$",
       {"aB3d", "000Zz9"},
       {"aB3", "abcd", "ABC1", "aB3defg", "aB3-"}},
      {"(?=(?!ab)..(?=c)).*", {"aacx", "bbc"}, {"abc", "aab", "aa"}},
      // A decimal of 6 digits, 2 of them after the point, as pydantic writes it.
      {"^(?!^[-+.]*$)[+-]?0*(?:\\d{0,4}|(?=[\\d.]{1,7}0*$)\\d{0,4}\\.\\d{0,2}0*$)",
       {"1", "-0012.50", "1234.5", "+0.1", ".5", "1.", "1.2500"},
       {"", "-", "+.", "12345", "1.255", "1.2.3"}},
      // Properties.
      {"\\p{Lu}\\p{Ll}*", {"\xc3\x84\xc3\xa4", "Ab"}, {"\xc3\xa4", "A1"}},
      {"[\\p{Greek}\\d]+",
       {"\xce\xb1\xce\xa9"
        "1"},
       {"a", ""}},
      {"\\pN\\P{L}[^\\p{L}]\\p{^L}\\p{gc=Letter}", {"1234a"}, {"a234a", "12345", "1a34a"}},
      {"\\p{Script=Han}{2}\\p{sc=Cyrillic}\\p{Any}\\p{ASCII}",
       {"\xe6\xbc\xa2\xe5\xad\x97\xd0\x96\xc3\xa4x"},
       {"\xe6\xbc\xa2"}},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.pattern);
    ExpectTexts(ReadRegex(c.pattern), c.accepted, c.refused);
  }
}

TEST(RegexTest, ErrorsNameThePlace) {
  std::string deep(300, '(');
  deep += "a" + std::string(300, ')');
  std::string looks;
  for (int i = 0; i < 101; ++i) looks += "(?=a)";
  const struct {
    std::string pattern;
    const char* error;
  } kCases[] = {
      {"a(b", "byte 1: a ( without its )"},
      {"ab)", "byte 2: a ) without its ("},
      {"a[b", "byte 1: a [ without its ]"},
      {"a[b-", "byte 1: a [ without its ]"},
      {"[]a]", "byte 1: a ] at the beginning of a class must be \\]"},
      {"[^]a]", "byte 2: a ] at the begin"},
      {"[z-a]", "byte 1: a range that descends"},
      {"[a-\\d]", "byte 1: a range of more than characters"},
      {"[[:alpha:]]", "byte 1: [: in a class is not served"},
      {"*a", "byte 0: nothing stands before it"},
      {"a|+", "byte 2: nothing stands before it"},
      {"(?:?)", "byte 3: nothing stands before it"},
      {"a**", "byte 2: nothing stands before it"},
      {"a{2}*", "byte 4: nothing stands before it"},
      {"{2}", "byte 0: nothing stands before it"},
      {"^*", "byte 1: nothing stands before it"},
      {"a*+", "byte 2: a possessive quantifier is not served"},
      {"a{2}+", "byte 4: a possessive quantifier is not served"},
      {"a{3,2}", "byte 1: counts must ascend"},
      {"a{1,20000}", "byte 1: counts must ascend and be at most 10000"},
      {"a{99999999999999999999}", "byte 1: counts"},
      {"(a)\\1", "byte 3: \\1 (a back-reference) is not served"},
      {"\\k<n>", "byte 0: \\k (a back-reference) is not served"},
      {"a\\b", "byte 1: \\b (a word boundary) is not served"},
      {"a\\Z", "byte 1: \\Z (an anchor) is not served"},
      {"a\\p{Klingon}", "byte 1: the property \"Klingon\" is not served"},
      {"\\p{sc=Lu}", "byte 0: the property \"sc=Lu\" is not served"},
      {"[\\p{L]", "byte 1: the name of a property is not ended"},
      {"\\p", "byte 0: the property \"\" is not served"},
      {"\\q", "byte 0: \\q (an escape) is not served"},
      {"\\012", "byte 0: an octal escape is not served"},
      {"a(?=b", "byte 1: a ( without its )"},
      {looks, "look-ahead in more than 100 places is not served"},
      {"((?=a*b)a)*(a|(?=.{400}c).){900}", "byte 0: the conditions of the regular expression need"},
      {"(?<=b)", "byte 0: (?<= (look-behind) is not served"},
      {"(?<!b)", "byte 0: (?<! (look-behind) is not served"},
      {"(?i)a", "byte 0: (? (an inline flag"},
      {"(?>a)", "byte 0: (?> (an atomic group) is not served"},
      {"(?#a)", "byte 0: (?# (a comment) is not served"},
      {"(?P=n)", "byte 0: (?P (a reference to a group) is not served"},
      {"(?<n", "byte 0: the name of a group is not ended"},
      {"\\x4", "byte 0: \\x names no character"},
      {"\\u{110000}", "byte 0: \\u names no character"},
      {"\\u{}", "byte 0: \\u names no character"},
      {"\\ud800", "byte 0: \\u names no character"},
      {"a\\", "byte 1: a \\ at the end"},
      {"\\\xc3\xa4", "byte 0: an escape of a character that needs none"},
      {"a\xff", "byte 1: not valid UTF-8"},
      {"a[\xc3", "byte 2: not valid UTF-8"},
      {deep, "byte 201: groups are nested too deep"},
  };
  for (const auto& c : kCases) {
    const auto grammar = ReadRegex(c.pattern);
    EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument) << c.pattern;
    EXPECT_THAT(std::string(grammar.status().message()), testing::HasSubstr(c.error));
  }
}

TEST(RegexTest, LargeExpressionsAreRefused) {
  for (const char* pattern : {"((a{10000}){10000}){10000}", "((){10000}){10000}",
                              "(((a|b|){0,1000}){0,1000}){0,1000}", ".{10000}.{10000}"}) {
    const auto automaton = MakeAutomaton(ReadRegex(pattern));
    EXPECT_EQ(automaton.status().message(), "the format is too large") << pattern;
  }
}

TEST(RegexTest, ManyClasses) {
  std::string many;
  for (int i = 0; i < 60'000; ++i) many += "[^a]";
  EXPECT_EQ(MakeAutomaton(ReadRegex(many)).status().message(), "the format is too large");
  many.clear();
  for (uint32_t c = 0x400; c < 0x400 + 5000; ++c) {
    many += "[^";
    tokenizer::AppendUtf8(c, &many);
    many += "]";
  }
  EXPECT_THAT(std::string(ReadRegex(many).status().message()),
              testing::HasSubstr("there are too many different classes"));
}

TEST(RegexTest, SearchedTextsHaveTheExpressionSomewhere) {
  const auto part = [](const char* pattern) -> absl::StatusOr<Grammar> {
    const auto read = RegexPart(pattern, {.search = true, .character = Character});
    if (!read.ok()) return read.status();
    return Grammar{{*read}, {"regex"}};
  };
  ExpectTexts(part("ab"), {"ab", "xab", "abx", "\nab\n"}, {"a", "ba"});
  ExpectTexts(part("^ab"), {"ab", "abx"}, {"xab"});
  ExpectTexts(part("ab$|^c"), {"ab", "xab", "cx"}, {"abx", "xc"});
}

// The characters at the edges of random ranges, and all others at random.
TEST(RegexTest, RandomClassesAreTheirCharacters) {
  std::mt19937 random(3);
  const auto point = [&random] { return random() % (0x110000u >> (random() % 15)); };
  for (int i = 0; i < 200; ++i) {
    CodePoints ranges;
    for (int j = static_cast<int>(random() % 4); j >= 0; --j) {
      const uint32_t first = point();
      ranges.emplace_back(first, first + random() % (1u << (random() % 18)));
    }
    for (const bool negated : {false, true}) {
      auto automaton = Automaton::Make(
          {{Choice({negated ? CharacterNot(ranges) : Character(ranges), Literal("--")})},
           {"root"}});
      ASSERT_TRUE(automaton.ok());
      std::vector<uint32_t> points = {0, 0x10ffff, 0xd7ff, 0xe000};
      for (const auto& [first, last] : ranges)
        points.insert(points.end(), {first - 1, first, last, last + 1});
      for (int j = 0; j < 20; ++j) points.push_back(point());
      for (const uint32_t c : points) {
        if (c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) continue;
        bool in = false;
        for (const auto& [first, last] : ranges) in = in || (first <= c && c <= last);
        std::string text;
        tokenizer::AppendUtf8(c, &text);
        ASSERT_EQ(HasText(&*automaton, text), in != negated) << c;
      }
    }
  }
}

bool IsIn(const CodePoints& ranges, uint32_t c) {
  for (const auto& [first, last] : ranges) {
    if (first <= c && c <= last) return true;
  }
  return false;
}

// Every tenth character of the plane of most scripts, against another library. Characters that are
// newer than one of the two are left out.
TEST(RegexTest, CategoriesAreThoseOfUnicode) {
  int in_all = 0;
  const CodePoints unknown = CharactersOfProperty("Cn").value();
  for (const char* name :
       {"Lu", "Ll", "Lo", "Mn", "Nd", "Pd", "Po", "Sc", "Zs", "Cc", "L", "N", "Punctuation"}) {
    const CodePoints ranges = CharactersOfProperty(name).value();
    const std::string category = name == std::string("Punctuation") ? "P" : name;
    for (uint32_t c = 0; c < 0xd800; c += 10) {
      const std::string real = utf8proc_category_string(static_cast<utf8proc_int32_t>(c));
      if (real == "Cn" || IsIn(unknown, c)) continue;
      ASSERT_EQ(IsIn(ranges, c), absl::StartsWith(real, category)) << name << " " << c;
      in_all += IsIn(ranges, c) ? 1 : 0;
    }
  }
  EXPECT_GT(in_all, 5000);
}

std::string RandomPattern(std::mt19937* random, int depth) {
  const auto one_of = [random](const std::vector<std::string>& texts) {
    return texts[(*random)() % texts.size()];
  };
  std::string pattern;
  for (int i = static_cast<int>((*random)() % 3); i >= 0; --i) {
    std::string atom = one_of({"a", "b", "c", ".", "[ab]", "[^a]", "[a-c]", "\\x61", "[^\\x62-c]"});
    if (depth > 0 && (*random)() % 3 == 0)
      atom = one_of({"(", "(?:", "(?=", "(?!"}) + RandomPattern(random, depth - 1) + ")";
    if ((*random)() % 8 == 0) pattern += one_of({"^", "$"});
    pattern += atom;
    if ((*random)() % 2 == 0) {
      pattern += one_of(
          {"*", "+", "?", "{2}", "{1,}", "{1,2}", "{0,3}", "{0}", "*?", "+?", "??", "{1,2}?"});
    }
  }
  if ((*random)() % 4 == 0)
    pattern += "|" + ((*random)() % 5 == 0 ? "" : RandomPattern(random, depth));
  return pattern;
}

TEST(RegexTest, RandomPatternsMatchWhatPcreMatches) {
  Texts texts = {""};
  for (size_t i = 0; texts[i].size() < 6; ++i) {
    for (const char c : {'a', 'b', 'c'}) texts.push_back(texts[i] + c);
  }
  std::mt19937 random(1);
  int64_t matched = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::string pattern = RandomPattern(&random, 2);
    SCOPED_TRACE(pattern);
    int error = 0;
    PCRE2_SIZE position = 0;
    const std::string whole = absl::StrCat("\\A(?:", pattern, ")\\z");
    const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(whole.data()), whole.size(), PCRE2_UTF, &error,
                      &position, nullptr),
        &pcre2_code_free);
    ASSERT_NE(code, nullptr);
    pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
    const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
        pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
    auto automaton = MakeAutomaton(ReadRegex(pattern));
    const bool none = automaton.status().message() == "no text has the format";
    ASSERT_TRUE(automaton.ok() || none) << automaton.status();
    for (const std::string& text : texts) {
      const int found = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                    text.size(), 0, 0, match.get(), nullptr);
      ASSERT_TRUE(found >= 0 || found == PCRE2_ERROR_NOMATCH) << found;
      ASSERT_EQ(!none && HasText(&*automaton, text), found >= 0) << text;
      matched += found >= 0 ? 1 : 0;
    }
    if (!none) {
      EXPECT_EQ(automaton->refusals(), 0);
    }
  }
  EXPECT_GT(matched, 10'000);
}

TEST(RegexTest, BrokenPatternsDoNotCrash) {
  ExpectNoCrash(
      {"^(?=.*\\p{Lu})(?!a|b$)(c|^d){2,9}x$", "^(?:a|[^b-d\\d]{2,3}?)*\\u{1F600}\\x41$|(?<n>.+)\\.",
       "[\\w\\-]+@(\\s|x{,3})\xc3\xa4"},
      ReadRegex);
}

}  // namespace
}  // namespace coppice::grammar
