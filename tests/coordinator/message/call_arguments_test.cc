#include "coordinator/message/call_arguments.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "coordinator/message/text_arguments.h"

namespace coppice::coordinator {
namespace {

// The JSON, and behind a bar what is no part of the arguments.
std::string FromPython(const std::string& text) {
  PythonArgumentsReader reader;
  std::string json;
  for (size_t at = 0; at < text.size(); ++at) {
    const Took took = reader.Read(text[at], &json);
    if (took == Took::kLast) {
      const std::string rest = text.substr(at + 1);
      return rest.empty() ? json : json + "|" + rest;
    }
    if (took == Took::kWrong) return json + "|" + reader.held() + text.substr(at);
  }
  reader.Finish(&json);
  return json + "...";
}

TEST(PythonArguments, AreWrittenAsJson) {
  const std::pair<const char*, const char*> rows[] = {
      {")", "{}"},
      {" ) x", "{}| x"},
      {"a=1)", R"({"a": 1})"},
      {"a = 1 , b = 'x',\n)", R"({"a": 1, "b": "x"})"},
      {"a=True, b=false, c=None, d=null)", R"({"a": true, "b": false, "c": null, "d": null})"},
      {"a=-1, b=+2, c=.5, d=-.5, e=5., f=1.e3, g=1_000, h=1e-5)",
       R"({"a": -1, "b": 2, "c": 0.5, "d": -0.5, "e": 5.0, "f": 1.0e3, "g": 1000, "h": 1e-5})"},
      {"a=[], b=[1, [2], (3,),], c={})", R"({"a": [], "b": [1, [2], [3]], "c": {}})"},
      {"a={'k': 1, \"l\" : [True], 'm': {'n': 'o'},})",
       R"({"a": {"k": 1, "l": [true], "m": {"n": "o"}}})"},
      {"a='it\\'s', b=\"a \\\"b\\\"\", c='\"')", R"({"a": "it's", "b": "a \"b\"", "c": "\""})"},
      {R"(a='\n\t\\\x41\u00e9\U0001F600\101\0\7x\8')", R"({"a": "\n\t\\Aé😀A\u0000\u0007x\\8"...)"},
      {R"(a='\d\x4g\
end'))",
       R"({"a": "\\d\\x4gend"})"},
      {R"(a='\ud83d\ude00'))", R"({"a": "\ud83d\ude00"})"},
      {"a='''b'c''d''', e=\"\")", R"({"a": "b'c''d", "e": ""})"},
      {"a='two\nlines')", R"({"a": "two\nlines"})"},
  };
  for (const auto& [python, json] : rows) {
    const std::string found = FromPython(python);
    EXPECT_EQ(found, json) << python;
    if (found.back() == '}') {
      EXPECT_TRUE(nlohmann::json::accept(found)) << found;
    }
  }
}

TEST(PythonArguments, WhatIsNoneEndsThem) {
  const std::pair<const char*, const char*> rows[] = {
      {"1)", "|1)"},
      {"a + 1)", "|a + 1)"},
      {"a=b)", "{\"a\": |b)"},
      {"a=01)", "{\"a\": |01)"},
      {"a=0x10)", "{\"a\": |0x10)"},
      {"a=1 2)", "{\"a\": 1|2)"},
      {"a=[1)", "{\"a\": [1|)"},
      {"a={1: 2})", "{\"a\": {|1: 2})"},
      {"a={'b', 2})", "{\"a\": {\"b\"|, 2})"},
      {"a=f(1))", "{\"a\": |f(1))"},
      {"a=nan)", "{\"a\": |nan)"},
      {"*a)", "|*a)"},
      {"a=)", "{\"a\": |)"},
      {"a=12", "{\"a\": 12..."},
      {"a=Tru", "{\"a\": ..."},
      {"a='x\\", "{\"a\": \"x..."},
  };
  for (const auto& [python, json] : rows) EXPECT_EQ(FromPython(python), json) << python;
  EXPECT_EQ(FromPython("a=" + std::string(1000, '[')).find('|'), 206u);
  EXPECT_EQ(FromPython(std::string(1000, 'a')), "|" + std::string(1000, 'a'));
}

TEST(TextArguments, TheSchemaTellsHowAValueIsWritten) {
  const Tool tool = {"f", R"({"properties": {"s": {"type": "string"}, "n": {"type": "number"},
      "m": {"type": ["string", "null"]}, "e": {"enum": ["1", "2"]}, "t": true}})"};
  const auto values = TextValues(tool);
  const auto json = [&](const char* key, const char* text) {
    const auto value = values.find(key);
    return TextAsJson(text, value == values.end() ? TextValue::kOther : value->second);
  };
  EXPECT_EQ(json("s", "12"), "\"12\"");
  EXPECT_EQ(json("s", "a\n\"b\""), R"("a\n\"b\"")");
  EXPECT_EQ(json("n", " 12 "), "12");
  EXPECT_EQ(json("n", "twelve"), "\"twelve\"");
  EXPECT_EQ(json("m", "null"), "null");
  EXPECT_EQ(json("m", "12"), "\"12\"");
  EXPECT_EQ(json("e", "1"), "\"1\"");
  EXPECT_EQ(json("t", "True"), "true");
  EXPECT_EQ(json("other", "{\"a\": [1]}"), "{\"a\": [1]}");
  EXPECT_EQ(json("other", "{a}"), "\"{a}\"");
  EXPECT_TRUE(TextValues({"f", "{"}).empty());
  EXPECT_TRUE(TextValues({"f", ""}).empty());
}

TEST(JsonValueReader, FindsTheEndOfAValue) {
  const auto size = [](const std::string& text) {
    JsonValueReader reader;
    for (size_t at = 0; at < text.size(); ++at) {
      const Took took = reader.Read(text[at]);
      if (took != Took::kTaken) return at + (took == Took::kLast ? 1 : 0);
    }
    return text.size() + 100;
  };
  EXPECT_EQ(size("{} "), 2u);
  EXPECT_EQ(size(R"({"a": "}\"}", "b": [{}]}})"), 24u);
  EXPECT_EQ(size("12, "), 2u);
  EXPECT_EQ(size("null}"), 4u);
  EXPECT_EQ(size(R"("a\"b" )"), 6u);
  EXPECT_EQ(size("{\"a\": ["), 107u);
}

}  // namespace
}  // namespace coppice::coordinator
