// Strings of JSON schemas: patterns, formats and lengths.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "grammar/json_schema.h"
#include "tests/grammar/schema_cases.h"
#include "tests/grammar/texts.h"

namespace coppice::grammar {
namespace {

TEST(JsonStringTest, PatternsAndFormats) {
  ExpectCases({
      {R"({"type":"string","pattern":"^[a-c]+$"})", {R"("abc")"}, {R"("")", R"("abd")"}},
      {R"({"pattern":"b"})", {R"("b")", R"("abc\n")"}, {R"("ac")", "1"}},
      {R"({"pattern":"^b|c$"})", {R"("bx")", R"("xc")"}, {R"("xb")", R"("cx")"}},
      // The pattern is of the text, which the string writes with escapes.
      {R"({"pattern":"^.\\\\\"\\n\\x00?$"})", {R"("a\\\"\n")", R"("\\\\\"\n")"}, {"\"a\\\"\n\""}},
      {R"({"pattern":"^[^a]$"})", {R"("\"")", R"("\t")", "\"\xc3\xa4\""}, {R"(""")", R"("\")"}},
      {R"({"format":"date"})",
       {R"("2024-02-29")", R"("2000-02-29")", R"("1999-12-31")", R"("2023-04-30")"},
       {R"("2023-02-29")", R"("1900-02-29")", R"("2023-04-31")", R"("2023-13-01")", R"("23-1-1")",
        R"("2023-00-10")", R"("2023-01-00")", R"("2100-02-29")"}},
      {R"({"format":"time"})",
       {R"("23:59:59Z")", R"("00:00:00.123+01:30")"},
       {R"("24:00:00Z")", R"("12:60:00Z")", R"("12:00:00")", R"("12:00:00.Z")"}},
      {R"({"type":"string","format":"date-time"})",
       {R"("2024-02-29T12:00:00Z")"},
       {R"("2024-02-30T12:00:00Z")", R"("2024-02-29 12:00:00Z")"}},
      {R"({"format":"uuid"})",
       {R"("123e4567-e89b-12d3-A456-426614174000")"},
       {R"("123e4567e89b12d3a456426614174000")"}},
      {R"({"format":"email"})",
       {R"("a.b+c@example.org")", R"("x@a-b.co.uk")"},
       {R"("a")", R"("a@b")", R"("a..b@c.de")", R"("a@-b.de")"}},
      {R"({"format":"ipv4"})",
       {R"("0.10.199.255")"},
       {R"("1.2.3")", R"("256.1.1.1")", R"("01.1.1.1")"}},
  });
}

TEST(JsonStringTest, PatternsAndFormatsOfALength) {
  ExpectCases({
      {R"({"pattern":"^[a-z]+$","minLength":2,"maxLength":3})",
       {R"("ab")", R"("abc")"},
       {R"("a")", R"("abcd")", R"("a1")"}},
      {R"({"pattern":"b","maxLength":3})",
       {R"("b")", R"("abc")",
        "\"\xc3\xa4\xf0\x9f\x98\x80"
        R"(b")",
        R"("\n\\b")"},
       {R"("abcd")", R"("aaa")", R"("\n\\xb")"}},
      {R"({"pattern":"^\\S*$","minLength":3})",
       {R"("abc")", R"("\"\\x")"},
       {R"("ab")", R"("\"x")"}},
      {R"({"format":"email","maxLength":8})", {R"("a@bc.de")"}, {R"("abc@de.org")", R"("")"}},
  });
}

// Each would be read in a moment; all of them may not take as long as they like.
TEST(JsonStringTest, PatternsOfALengthAreLimitedTogether) {
  for (const char* pattern : {"^(a?){400}$", "^((a{100}){100}){30}$", "^[a-z]{0,200}b[a-z]{0,200}$",
                              "^(a|b)*a(a|b){9}$"}) {
    SCOPED_TRACE(pattern);
    std::string schema = R"({"anyOf":[{"type":"null"})";
    for (int i = 0; i < 900; ++i)
      absl::StrAppend(&schema, R"(,{"maxLength":300,"pattern":")", pattern, "\"}");
    EXPECT_THAT(ReadJsonSchema(schema + "]}").status().message(),
                testing::HasSubstr("pattern: with the limits of the length the schema is too"));
  }
}

// A usual schema has room.
TEST(JsonStringTest, ManyFieldsMayHaveAPatternAndALength) {
  std::string schema = R"({"properties":{"n":{"type":"null"})";
  for (int i = 0; i < 60; ++i) {
    absl::StrAppend(&schema, ",\"p", i, R"(":{"pattern":"^[A-Za-z_][A-Za-z0-9_-]*$","maxLength":)",
                    64 + i, "}");
  }
  EXPECT_TRUE(MakeAutomaton(ReadJsonSchema(schema + "}}")).ok());
}

TEST(JsonStringTest, FurtherFormats) {
  ExpectCases({
      {R"({"format":"uuid4"})",
       {R"("123e4567-e89b-42d3-a456-426614174000")"},
       {R"("123e4567-e89b-12d3-a456-426614174000")", R"("123e4567-e89b-42d3-c456-426614174000")"}},
      {R"({"format":"ipv6"})",
       {R"("::")", R"("::1")", R"("1:2:3:4:5:6:7:8")", R"("fe80::Aa:1")", R"("1::8")", R"("1::")"},
       {R"("1:2:3")", R"(":1")", R"("1::2::3")", R"("12345::")", R"("1:2:3:4:5:6:7:8:9")"}},
      {R"({"format":"duration"})",
       {R"("P1D")", R"("PT36H")", R"("P1Y2M3DT4H5M6S")", R"("P2W")", R"("PT1M2S")"},
       {R"("P")", R"("PT")", R"("P1DT")", R"("P1Y1D")", R"("1D")", R"("P1W1D")", R"("PT1H1S")"}},
      {R"({"format":"uri"})",
       {R"("http://a.org")", R"("https://x.y-z.org:8080/a/b%20c?d=e&f#g")", R"("ftp://10.0.0.1/")"},
       {R"("a.org")", R"("http://")", R"("http://a.org/ b")", R"("http://a.org:99999")",
        R"("http://a.org/%2")", R"("1http://a.org")"}},
      {R"({"format":"hostname"})", {R"("a.org")", R"("a-b.co")"}, {R"("a..b")", R"("-a.org")"}},
      {R"({"format":"byte"})",
       {R"("")", R"("YQ==")", R"("YWI=")", R"("YWJj")", R"("+/+/")"},
       {R"("Y")", R"("YR==")", R"("YWJ=")", R"("Y===")", R"("-_-_")"}},
      {R"({"format":"base64url"})", {R"("-_-_")"}, {R"("+/+/")"}},
      {R"({"format":"password","maxLength":2})", {R"("ab")"}, {R"("abc")"}},
      {R"({"type":"integer","format":"int32"})", {"1"}, {R"("a")"}},
  });
}

}  // namespace
}  // namespace coppice::grammar
