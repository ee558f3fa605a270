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
      {"{% block x %}{% endblock %}", "line 1: the tag {% block %} is not supported"},
      {"{% call 'm' %}{% endcall %}", "line 1: {% call %} needs a call"},
      {"\n\n{{ x | urlize }}", "line 3: the filter urlize is not supported"},
      {"{{ x is nothing }}", "line 1: the test nothing is not supported"},
      {"{{ x.encode() }}", "line 1: the method encode() is not supported"},
      {"{{ x.append(1) }}", "line 1: the method append() is not supported"},
      // What Jinja2 has is refused under a condition too.
      {"{% if x %}{{ x | urlize }}{% endif %}", "line 1: the filter urlize is not supported"},
      {"{{ x.encode() if x }}", "line 1: the method encode() is not supported"},
      {"{{ lipsum() }}", "line 1: the function lipsum() is not supported"},
      {"{{ x | selectattr('a', 'matches') }}", "line 1: the test matches is not supported"},
      {"{{ x | map('pprint') }}", "line 1: the filter pprint is not supported"},
      {"{{ x | map('map', 'upper') }}", "line 1: the filter map of map is not supported"},
      {"{% filter nofilter %}{% endfilter %}", "line 1: the filter nofilter is not supported"},
      {"{{ f(*x, *y) }}", "line 1: expected an argument, got '*'"},
      {"{{ '\\N{DASH}' }}", "line 1: named escapes in strings are not supported"},
      {"{{ 0xZ }}", "line 1: the number 0xZ is not supported"},
      {"{% for x in y %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
       "line 1: break and continue need a loop"},
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

// As Jinja2, which finds out when it is reached.
TEST(ChatTemplateTest, WhatDoesNotExistMayBeUsedUnderACondition) {
  const std::string uses[] = {"x | nofilter", "x is notest",           "nofunction()",
                              "x.nomethod()", "[1] | map('nofilter')", "[1] | select('notest')",
                              "[1].append(2)"};
  for (const std::string& use : uses) {
    EXPECT_THAT(WhyRefused("{{ " + use + " }}"), HasSubstr("is not supported")) << use;
    for (const std::string& source :
         {"{% if y %}{{ " + use + " }}{% endif %}ok", "{{ (" + use + ") if y else 'ok' }}"}) {
      const absl::StatusOr<std::string> text = RenderText(source);
      ASSERT_TRUE(text.ok()) << source << text.status();
      EXPECT_EQ(*text, "ok");
      const absl::Status reached = RenderText(source, {{"y", 1}, {"x", "a"}}).status();
      EXPECT_EQ(reached.code(), absl::StatusCode::kInvalidArgument) << source;
    }
  }
  EXPECT_EQ(*RenderText("{{ y and nofunction() }}"), "");
  EXPECT_EQ(*RenderText("{% macro m() %}{{ nofunction() }}{% endmacro %}ok"), "ok");
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
      "{{ '%10000s' % 'a' * 1000 }}",
      "{% set a = '%9999s' * 200 %}{{ a % ('a' * 200) | list }}{{ (a ~ a) % 1 }}",
      "{{ 'a'.ljust(100000000000) }}",
      "{{ ('{:9999}' * 200).format(*'a' * 200) }}",
      "{% macro m() %}{{ caller() }}{{ caller() }}{% endmacro %}{% macro n() %}{% call m() %}{{ "
      "n() }}"
      "{% endcall %}{% endmacro %}{{ n() }}",
      "{% for x in [1] recursive %}{{ loop([1, 1]) }}{% endfor %}",
      "{% for i in range(100000) %}{% macro m() %}{% endmacro %}{% endfor %}",
      "{{ [1] | batch(100000000000, 0) | list }}",
      "{{ [1] | slice(100000000000) | list }}",
      "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
      "{{ loop.changed(ns.x) }}{% endfor %}",
      "{% for i in range(90000) %}{{ range(1000) | sort | first }}{% endfor %}",
      "{{ range(9000) | unique | list | length }}",
      "{% set ns = namespace(d={}) %}{% for i in range(90000) %}{% set ns.d = dict(ns.d, "
      "**{i | string: i}) %}{% endfor %}",
      "{{ ('a\t' * 9000).expandtabs(256) }}{{ 'a'.zfill(1000000000) }}",

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

TEST(ChatTemplateTest, LoopsAndMacrosMayHoldThemselves) {  // and do not leak
  EXPECT_EQ(*RenderText("{% set n = namespace() %}{% macro m() %}{% macro i() %}x{% endmacro %}"
                        "{% set n.i = i %}{% endmacro %}{{ m() }}{{ n.i() }}"),
            "x");
  EXPECT_EQ(*RenderText("{% set n = namespace() %}{% for x in [1] recursive %}{% set n.l = loop %}"
                        "{% set y = [loop, n] %}{% endfor %}{{ n.l.index }}"),
            "2");
  EXPECT_FALSE(RenderText("{% for x in [1] %}{{ loop.changed([loop]) }}{% endfor %}").ok());
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
