#include "tokenizer/chat_template/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"

namespace coppice::tokenizer {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string WhyRefused(const std::string& source) {
  const absl::StatusOr<ChatTemplate> parsed = ChatTemplate::Parse(source);
  return parsed.ok() ? "accepted" : std::string(parsed.status().message());
}

absl::StatusOr<std::string> RenderText(const std::string& source,
                                       const Json& variables = Json::object(),
                                       const ChatRenderLimits& limits = {}) {
  const absl::StatusOr<ChatTemplate> parsed = ChatTemplate::Parse(source);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  if (!parsed.ok()) return parsed.status();
  return parsed->Render(variables, 0, limits);
}

TEST(ChatTemplateTest, RefusesWhatIsNotSupportedWithLineAndName) {
  const struct {
    const char* source;
    const char* why;
  } cases[] = {
      {"a\n{% include 'x' %}", "line 2: the tag {% include %} is not supported"},
      {"{% call m() %}{% endcall %}", "line 1: the tag {% call %} is not supported"},
      {"\n\n{{ x | groupby('a') }}", "line 3: the filter groupby is not supported"},
      {"{{ x is filter }}", "line 1: the test filter is not supported"},
      {"{{ x.format(1) }}", "line 1: the method format() is not supported"},
      {"{{ lipsum() }}", "line 1: the function lipsum() is not supported"},
      {"{{ x | selectattr('a', 'matches') }}", "line 1: the test matches is not supported"},
      {"{{ x | map('pprint') }}", "line 1: the filter pprint is not supported"},
      {"{% for x in y recursive %}{% endfor %}", "line 1: a recursive loop is not supported"},
      {"{{ f(*x) }}", "line 1: arguments with * are not supported"},
      {"{% if x %}\n", "line 1: expected {% endif %}, got the end of the template"},
      {"{{ x", "line 1: a tag is not closed"},
      {"{{ x ]}}", "line 1: unexpected ']'"},
      {"{{ 'x }}", "line 1: a string is not closed"},
      {"{# x", "line 1: a comment is not closed"},
      {"{% raw %}x", "line 1: raw is not closed"},
      {"{{ $ }}", "line 1: unexpected character '$'"},
      {"{% break %}", "line 1: break and continue need a loop"},
      {"{{ x + }}", "line 1: expected an expression, got '}}'"},
  };
  for (const auto& refused : cases)
    EXPECT_THAT(WhyRefused(refused.source), StartsWith(refused.why)) << refused.source;
  EXPECT_THAT(WhyRefused("\xff"), HasSubstr("not UTF-8"));
}

TEST(ChatTemplateTest, DeepAndLargeTemplatesAreRefused) {
  const auto repeated = [](const char* text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  for (const int times : {200, 20000}) {
    for (const char* nested : {"(", "[", "{'a': ", "not ", "-(", "a.b(", "1 if ("}) {
      EXPECT_THAT(WhyRefused("{{ " + repeated(nested, times)), StartsWith("line 1: ")) << nested;
    }
    EXPECT_THAT(WhyRefused("{{ a" + repeated(".b", times) + " }}"), HasSubstr("nested deeper"));
    EXPECT_THAT(WhyRefused("{{ a" + repeated(" + b", times) + " }}"), HasSubstr("nested deeper"));
    EXPECT_THAT(WhyRefused("{{ a" + repeated(" | trim", times) + " }}"),
                HasSubstr("nested deeper"));
    EXPECT_THAT(WhyRefused(repeated("{% if a %}", times)), HasSubstr("nested deeper"));
  }
  EXPECT_EQ(WhyRefused("{{ a" + repeated(" ~ b", 5000) + " }}"), "accepted");
  EXPECT_THAT(WhyRefused(std::string(300 << 10, 'x')), HasSubstr("at most 262144"));
}

TEST(ChatTemplateTest, WhatCostsTooMuchEnds) {
  ChatRenderLimits limits;
  limits.max_steps = 200'000;
  limits.max_bytes = 1 << 20;
  const char* kHostile[] = {
      "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}",
      "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(64) %}{% set ns.x = ns.x ~ ns.x "
      "%}{% endfor %}",
      "{% set ns = namespace(x='aa') %}{% for i in range(64) %}{% set ns.x = ns.x.replace('a', "
      "'aa') %}{% endfor %}",
      "{{ 'x' * 100000000000 }}",
      "{{ [1] * 100000000000 }}",
      "{{ ('a\n' * 5000) | indent(1000) }}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(90) %}{% set ns.x = ns.x + ns.x %}{% "
      "endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor "
      "%}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% "
      "endfor %}{{ ns.x }}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% "
      "endfor %}{{ ns.x | tojson }}",
      "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
      "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
      "{{ range(100001) | list }}",
      "{% for i in range(100000) %}0123456789{% endfor %}{% for i in range(100000) %}0123456789{% "
      "endfor %}",
      "{{ ('a' * 1000000).split('') }}",
      "{{ ('a' * 900000) | replace('a', 'b' * 900000) }}",
      "{% set a = 'a' * 500000 %}{% for i in range(1000) %}{% if a == a ~ '' %}{% endif %}{% "
      "endfor %}",
  };
  for (const char* source : kHostile) {
    const absl::StatusOr<std::string> text = RenderText(source, Json::object(), limits);
    EXPECT_FALSE(text.ok()) << source;
    EXPECT_THAT(std::string(text.status().message()), StartsWith("line ")) << source;
  }
}

TEST(ChatTemplateTest, LongChatsAreWithinTheLimits) {
  Json variables;
  for (int i = 0; i < 2000; ++i)
    variables["messages"].push_back({{"role", "user"}, {"content", std::string(1000, 'x')}});
  const absl::StatusOr<std::string> text = RenderText(
      "{% for m in messages %}{{ m.role + m['content'] | trim }}{% endfor %}", variables);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->size(), 2000u * 1004u);
}

TEST(ChatTemplateTest, ErrorsNameTheLine) {
  EXPECT_EQ(RenderText("\n\n{{ messages[0].content.x.y }}", {{"messages", {{{"content", "a"}}}}})
                .status()
                .message(),
            "line 3: a string has no 'x'");
  EXPECT_EQ(RenderText("{{ a.b }}").status().message(), "line 1: 'a' is undefined");
  EXPECT_EQ(RenderText("{{ 'a' + 1 }}").status().message(),
            "line 1: cannot add a string and an integer");
  EXPECT_EQ(RenderText("{{ raise_exception('no ' ~ 1) }}").status(),
            absl::FailedPreconditionError("no 1"));
}

TEST(ChatTemplateTest, ANamespaceMayHoldItself) {  // and does not leak
  EXPECT_EQ(*RenderText("{% set n = namespace(a=1) %}{% set n.b = [n] %}{{ n.b[0].a }}"), "1");
}

TEST(ChatTemplateTest, IntegersHaveTheirBounds) {
  EXPECT_THAT(std::string(RenderText("{{ 9223372036854775807 + 1 }}").status().message()),
              HasSubstr("too large"));
  EXPECT_EQ(*RenderText("{{ (-9223372036854775807 - 1) // -1 if false else 'x' }}"), "x");
  EXPECT_FALSE(RenderText("{{ (-9223372036854775807 - 1) // -1 }}").ok());
  EXPECT_EQ(*RenderText("{{ (-9223372036854775807 - 1) % -1 }}"), "0");
  EXPECT_EQ(
      *RenderText("{{ 'abc'[-9223372036854775807:9223372036854775807:9223372036854775807] }}"),
      "a");
}

}  // namespace
}  // namespace coppice::tokenizer
