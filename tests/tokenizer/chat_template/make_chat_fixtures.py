#!/usr/bin/env python3
"""Makes tests/tokenizer/chat_template/fixtures: what Jinja2 makes of chat templates, with the settings of Transformers.

  pip install jinja2
  tests/tokenizer/chat_template/make_chat_fixtures.py            # writes language.json and conversations.json
  tests/tokenizer/chat_template/make_chat_fixtures.py --check    # compares them with what this Jinja2 gives

language.json: small templates, one for each construct. conversations.json: random conversations for the built-in families and for
the templates in fixtures/templates. A case has `text`, or `raises` (the template's own message), or `fails`.
"""
import argparse
import datetime
import json
import pathlib
import random
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

ROOT = pathlib.Path(__file__).resolve().parents[3]
FAMILIES = ROOT / "tokenizer/chat_template/families"
FIXTURES = ROOT / "tests/tokenizer/chat_template/fixtures"
NOW = 1790000000  # the time that strftime_now shows, in UTC

VARIABLES = {
    "s": " H\u00e9llo  w\u00f6rld\n", "e": "", "n": 7, "f": 2.5, "neg": -3, "t": True, "no": None, "l": [3, 1, 2],
    "ls": ["b", "a", "C"], "d": {"a": 1, "b": {"c": [1, 2]}, "items": 5},
    "messages": [
        {"role": "system", "content": "Be nice.\n"},
        {"role": "user", "content": "Hi 'there' \"x\" \\ \t \u00e9 \U0001f600"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes"},
        {"role": "user", "content": ""}],
    "nested": [[1, "a"], [2, "b"]], "big": 123456789012, "u": "na\u00efve Gr\u00f6\u00dfe", "nl": "a\r\nb\n\nc",
    "ws": " \t\n x \u00a0 ",
}

LANGUAGE = [
    '{{ s }}|{{ s|trim }}|{{ s.strip() }}|{{ s|length }}|{{ s|upper|lower }}',
    '{{ n }} {{ f }} {{ t }} {{ no }} {{ l }} {{ d }} {{ ls }} {{ nested }}',
    "{{ missing }}|{{ missing is defined }}|{{ missing|default('x') }}|{{ e|default('y', true) }}|{{ d.zz }}",
    '{{ missing.x }}',
    "{{ d.keys()|list }} {{ d.values()|list }} {{ d.get('a') }} {{ d.get('q') }} {{ d.get('q', 3) }}",
    '{{ l[0] }} {{ l[-1] }} {{ l[9] }} {{ l[1:] }} {{ l[::-1] }} {{ l[:-1] }} {{ l[5:] }} {{ l[-2:] }} {{ l[::2] }}',
    '{{ u[0] }} {{ u[2] }} {{ u[-1] }} {{ u[1:4] }} {{ u[::-1] }} {{ u|length }} {{ u[:100] }} {{ u[100:] }}',
    '{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7.5 // 2 }} {{ 7.5 % 2 }} {{ -7.5 % 2 }}',
    '{{ 1 / 0 }}',
    '{{ 1 // 0 }}',
    "{{ 'a' + 'b' }} {{ 'a' ~ 1 ~ none ~ true ~ 2.0 }} {{ [1] + [2] }} {{ 'ab' * 3 }} {{ 3 * 'x' }} {{ [1] * 2 }} {{ (1,) + (2,) }}",
    "{{ 'a' + 1 }}",
    "{{ 1 == 1.0 }} {{ 'a' == 'a' }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ 1 != 2 }} {{ none == false }} {{ [1,2] == [1,2] }} {{ (1,2) == [1,2] }} {{ {'a': 1} == {'a': 1.0} }} {{ true == 1 }}",
    "{{ 1 < 'a' }}",
    "{{ 'a' in 'abc' }} {{ 'x' not in 'abc' }} {{ 1 in l }} {{ 'a' in d }} {{ 'z' in d }} {{ 'x' in missing }} {{ 3 in l and 4 not in l }}",
    "{{ 1 in 'abc' }}",
    "{{ true and 'x' }} {{ false or 'y' }} {{ '' or none }} {{ not '' }} {{ 1 and 0 or 5 }} {{ not not 3 }}",
    "{{ 'a' if true else 'b' }} {{ 'a' if false }}| {{ 'a' if false else 'b' if false else 'c' }}",
    "{{ 'x' is string }} {{ 1 is string }} {{ d is mapping }} {{ l is sequence }} {{ l is iterable }} {{ 'x' is iterable }} {{ d is iterable }} {{ 1 is iterable }} {{ none is none }} {{ n is number }} {{ n is integer }} {{ f is float }} {{ t is boolean }} {{ t is integer }} {{ t is number }} {{ t is true }} {{ 4 is even }} {{ 4 is odd }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 'a' is eq 'a' }} {{ 1 is not none }} {{ 2 is in [1,2] }} {{ 'abc' is lower }} {{ 'ABC' is upper }} {{ missing is undefined }} {{ missing is not defined }} {{ 1 is sameas 1 }} {{ missing is none }} {{ missing is iterable }}",
    "{{ l|first }} {{ l|last }} {{ l|length }} {{ l|count }} {{ l|join }} {{ l|join(', ') }} {{ ls|join('-') }} {{ l|max }} {{ l|min }} {{ ls|max }} {{ l|reverse|list }} {{ 'abc'|reverse }} {{ []|first }}| {{ []|max }}|",
    "{{ '3'|int }} {{ '3.7'|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ 3.9|int }} {{ '2.5'|float }} {{ 'x'|float }} {{ -3|abs }} {{ neg|abs }} {{ -2.5|abs }} {{ true|int }} {{ none|int }} {{ ' 12 '|int }}",
    '{{ \'hello world\'|title }} {{ \'hello WORLD\'|capitalize }} {{ "it\'s-a (test)"|title }} {{ "it\'s-a (test)".title() }} {{ \'hello WORLD\'.capitalize() }}',
    "{{ 'a,b,c'.split(',') }} {{ 'a b  c '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b c '.rsplit(none, 1) }} {{ ' a b  c '.split(none, 1) }} {{ 'abc'.split('x') }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a,b'.split(',')[-1] }} {{ 'a,b,c'.split(maxsplit=1, sep=',') }}",
    "{{ 'a'.split('') }}",
    "{{ 'xxabcxx'.strip('x') }} {{ 'xxabcxx'.lstrip('x') }} {{ 'xxabcxx'.rstrip('x') }} {{ 'xyabcyx'|trim('xy') }} {{ ws.strip() }}| {{ ws|trim }}| {{ ws.lstrip() }}| {{ ws.rstrip() }}|",
    "{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith('bc') }} {{ 'abc'.startswith(('x','a')) }} {{ 'abc'.startswith('') }}",
    "{{ 'aXbX'.replace('X', '-') }} {{ 'aXbX'.replace('X', '-', 1) }} {{ 'aXbX'|replace('X', '-') }} {{ 'abc'.replace('', '.') }} {{ 'abc'.replace('', '.', 2) }} {{ 'aaa'|replace('a', 'b', 2) }}",
    "{{ 'abcabc'.find('c') }} {{ 'abcabc'.rfind('c') }} {{ 'abc'.find('z') }} {{ 'öabc'.find('a') }} {{ 'abab'.count('ab') }} {{ 'abc'.count('') }} {{ 'abc'.index('b') }} {{ l.index(2) }} {{ l.count(3) }}",
    "{{ nl.splitlines() }} {{ nl.splitlines(true) }} {{ ''.splitlines() }} {{ 'a\\n'.splitlines() }}",
    "{{ ','.join(['a','b']) }} {{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }} {{ 'abc'.isalpha() }} {{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ ''.isalpha() }}",
    '{{ d|tojson }} {{ l|tojson }} {{ s|tojson }} {{ messages[1]|tojson }} {{ d|tojson(indent=2) }} {{ d|tojson(indent=4, sort_keys=true) }} {{ none|tojson }} {{ 1.5|tojson }} {{ []|tojson(indent=2) }} {{ {}|tojson }} {{ d|tojson(separators=(\',\', \':\')) }} {{ "a\\u0007\\x7f/"|tojson }}',
    '{{ missing|tojson }}',
    "{{ messages|selectattr('role', 'equalto', 'user')|list|length }} {{ messages|selectattr('role','==','user')|map(attribute='content')|list }} {{ messages|rejectattr('role', 'in', ['user','system'])|map(attribute='role')|join(',') }} {{ ls|map('upper')|list }} {{ l|select('odd')|list }} {{ l|reject('odd')|list }} {{ [0,1,'',2]|select|list }} {{ messages|selectattr('content')|list|length }} {{ l|map('string')|join }} {{ messages|map(attribute='zz', default='q')|join }}",
    "{{ 'a\\nb\\n\\nc'|indent }} {{ 'a\\nb'|indent(2, true) }} {{ 'a\\n\\nb'|indent(2, blank=true) }} {{ 'a\\nb'|indent('> ') }}",
    "{{ l|string }} {{ 5|string }} {{ d|items|list }} {{ 'abc'|list }} {{ d|list }} {{ (1,2)|list }} {{ none|string }} {{ 'x'|safe }}",
    "{% for x in l %}{{ x }}{{ ',' if not loop.last }}{% endfor %}",
    '{% for x in [] %}x{% else %}empty{% endfor %} {% for x in missing %}x{% else %}none{% endfor %}',
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }}{{ loop.depth0 }}{{ loop.cycle('a','b') }};{% endfor %}",
    '{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %} {% for k in d %}{{ k }}{% endfor %} {% for a, b in nested %}{{ a }}{{ b }}{% endfor %}',
    '{% for x in l if x > 1 %}{{ x }}/{{ loop.length }} {% endfor %}',
    "{% for c in 'añb' %}[{{ c }}]{% endfor %}",
    '{% for x in range(3) %}{{ x }}{% endfor %} {{ range(1, 5)|list }} {{ range(5, 0, -2)|list }} {{ range(0)|list }}',
    '{% for x in range(5) %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}',
    '{% for x in 5 %}{% endfor %}',
    '{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}',
    '{% set ns = namespace(x=1, found=false) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }} {{ ns.found }} {{ ns.zz }}',
    '{% set a, b = 1, 2 %}{{ a }}{{ b }} {% set (c, d2) = [3, 4] %}{{ c }}{{ d2 }}',
    '{% set t %}hello {{ n }}{% endset %}[{{ t }}] {% set t2 | upper | trim %} abc {% endset %}[{{ t2 }}]',
    '{% if n == 7 %}seven{% elif n == 8 %}eight{% else %}other{% endif %} {% if e %}a{% elif no %}b{% else %}c{% endif %}',
    "{% macro m(a, b='x', c=n) %}<{{ a }}{{ b }}{{ c }}>{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(b=3, a=4) }}{{ m() }}",
    '{% macro f(k) %}{% if k > 0 %}{{ k }}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(4) }}',
    '{% set g = 5 %}{% macro m() %}{{ g }}{% endmacro %}{% set g = 6 %}{{ m() }}',
    '{% for i in l %}{% set outer = loop %}{% for j in [1,2] %}{{ outer.index }}.{{ loop.index }} {% endfor %}{% endfor %}',
    "{{ raise_exception('bad thing') }}",
    "{{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%d %b %Y') }}",
    '{# comment #}a{#- c -#} b {#+ c +#} c',
    '  {%- if true -%}  z  {%- endif -%}  w',
    '{%+ if true %}  q{% endif +%}',
    "  {{- 'a' -}}  b",
    ' {% raw %}{{ x }} {% if %}{% endraw %} c {%- raw -%}  d  {%- endraw -%} e',
    '{{ "a\\"b\\\\n\\n\\t\\x41\\u00e9\\\'" }} {{ \'it\'\'s\' }} {{ \'a\' \'b\' }} {{ "\\q" }}',
    "{{ {'a': 1, 'b': [1, {'c': none}]} }} {{ {'a': 1}['a'] }} {{ {}.x }} {{ [1, 2,] }} {{ () }} {{ (1,) }} {{ 1, 2 }}",
    '{{ 1.0 }} {{ 1e10 }} {{ 1e16 }} {{ 1e-5 }} {{ 0.1 + 0.2 }} {{ 1e100 }} {{ 100000.0 }} {{ 1_000 }} {{ 3.14 }} {{ -0.0 }} {{ 123456789.123 }} {{ 1e15 }} {{ 0.0001 }}',
    '{{ -n }} {{ +n }} {{ -n|abs }} {{ - 3 + 5 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }}',
    '{{ "quote\'s" }} {{ ["it\'s"] }} {{ [\'a"b\'] }} {{ [\'a"b\\\'c\'] }} {{ [\'\\n\\t\\\\ é 😀 \\x01 \\u200b\'] }}',
    "{{ messages[-1]['content'] == '' }} {{ messages[0].content.strip() }} {{ messages|length }} {{ messages[1:]|length }} {{ messages[2].content.split('</think>')[-1].lstrip('\\n') }}",
    '{{ messages.0.role }} {{ l.1 }}',
    "{{ 'x' is defined and missing is not defined }} {{ (missing or 'z') }} {{ missing ~ 'a' }} {{ missing == missing2 }} {{ missing|length }} {{ missing|trim }}| {{ missing|list }} {{ not missing }}",
    "{{ missing + 'a' }}",
    '{{ missing[0] }}',
    "{{ no.x }} {{ no['x'] }} {{ n.x }} {{ 'a'.x }} {{ l.x }} {{ l['x'] }} {{ d[0] }}",
    '{{ missing() }}',
    '{{ d.a() }}',
    '{% generation %}a{% endgeneration %}b',
    '{% set x = [1,2] %}{% set x = x + [3] %}{{ x|last }} {{ x[1:][0] }}',
    "{{ 'a' | default('b') | upper ~ 'c' }} {{ 'a' ~ 'b' | upper }} {{ ('a' ~ 'b') | upper }} {{ 1 + 2 ~ 3 }} {{ 2 * 3 ~ 4 }}",
    "{{ 'abc'[1:] + 'd' }} {{ ('abc')[0] }} {{ 'abc'.upper()[0] }} {{ 'a-b'.split('-')[1].upper() }} {{ ['a','b'].index('b') }}",
    "{{ dict(a=1, b=2) }} {{ dict({'x': 1}, y=2) }}",
    "{{ 'x' if n is defined and n is not none else 'y' }} {{ n in [1,7] }} {{ n is number and f is float }}",
    '{{ big * 10 }} {{ 9223372036854775807 }}',
    "a{{ '' }}",
    '{% if true %}a{% endif %}',
    "{{ 'x'|indent(width=2,first=True) }} {{ True }} {{ None }} {{ none is not none }}",
    '{{ x.foo() }}',
    "{{ 'a' | nofilter }}",
    "{{ 'a' is notest }}",
    '{{ func() }}',
    '{{ (1 }}',
    '{{ 1 +',
    '{% if %}{% endif %}',
    '{% for x in y %}',
    '{% endif %}',
    "{{ 'unclosed }}",
    '{{ a b }}',
    '{% set ns = namespace(a=1) %}{% set ns.b = ns %}{{ ns.b.a }}',
    "{{ 'a' if x }}",
    "  {% if true %}\n  x\n  {% endif %}\n y\n  {%- if true -%}  z  {%- endif -%}  w\n{%+ if true %}  q{% endif +%}\n\n  {{- 'a' -}}  b\n {% raw %}{{ x }} {% if %}{% endraw %} c {%- raw -%}  d  {%- endraw -%} e\n",
    "{% for m in messages %}\n  {% if m.role == 'user' %}\nU: {{ m.content }}\n  {% else %}\nO: {{ m['content'] | trim }}\n  {% endif %}\n{% endfor %}\n{%- for m in messages -%}\n    {{- m.role -}}\n{%- endfor %}\n\n{% if true %}a{% endif %}\n\nb\n",
    "{{ 'a\\\nb' }}",
    '{%- if true %}\n\n  a\n{%- endif %}\n\n\nb\n',
    'x\n\n',
    '{{ "\\n" }}\n',
    'a {#- c #}  \n b',
    '{{ 1 }}\n{{ 2 }}\n',
    '  {{ 1 }}  {% if 1 %} a {% endif %}  \n',
    '{% set x %}\n a\n{% endset %}{{ x }}|',
    '{%- raw -%}\n {{ }} \n{%- endraw %}\n\nz',
    'line\r\nbreak\rs{{ "a\\r\\nb" }}',
]

WORDS = ["forest", " ", "\n", "  ", "tree\n", "\u00e9t\u00e9", "\u68ee\u6797", "\U0001f333", "'", '"', "\\", "{{ x }}", "{% if %}", "<|im_end|>",
         "</s>", "[INST]", "<think>", "</think>", "a", "1.5", "\t", "SELECT *", "<start_of_turn>", "-", "#", ""]
TOOL = {"type": "function", "function": {"name": "grow", "description": "Grows a \"tree\"", "parameters": {
    "type": "object", "properties": {"height": {"type": "number"}, "kind": {"type": "string"}}, "required": ["kind"]}}}


class TemplateRaised(Exception):
    pass


class GenerationTag(jinja2.ext.Extension):
    """{% generation %}, which marks what the assistant says and prints it as it is."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_print"), [], [], body).set_lineno(line)

    def _print(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise TemplateRaised(message)

    def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(text):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(text)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                         extensions=[GenerationTag, jinja2.ext.loopcontrols])
    made.filters["tojson"] = to_json
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = strftime_now
    return made


def outcome(template, variables):
    try:
        return {"text": environment().from_string(template).render(**variables)}
    except TemplateRaised as error:
        return {"raises": str(error)}
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError):
        return {"fails": True}


def language():
    return {"now": NOW, "variables": VARIABLES,
            "cases": [dict(template=text, **outcome(text, VARIABLES)) for text in LANGUAGE]}


def text_of(rng):
    return "".join(rng.choices(WORDS, k=rng.randint(0, 7)))


def conversation(rng, parts):
    messages = []
    if rng.random() < 0.4:
        messages.append({"role": "system", "content": text_of(rng)})
    role = "user"
    for _ in range(rng.randint(1, 5)):
        content = text_of(rng)
        if parts and rng.random() < 0.4:
            content = [{"type": "text", "text": text_of(rng)} for _ in range(rng.randint(1, 3))]
        messages.append({"role": role, "content": content})
        if rng.random() < 0.95:
            role = "assistant" if role == "user" else "user"
    return messages


def conversations():
    paths = sorted(FAMILIES.glob("*.jinja")) + sorted((FIXTURES / "templates").glob("*.jinja"))
    found = []
    for path in paths:
        rng = random.Random(path.name)
        cases = []
        for _ in range(16):
            variables = {"messages": conversation(rng, "parts" in path.name), "bos_token": "<s>", "eos_token": "</s>",
                         "add_generation_prompt": rng.random() < 0.6}
            if "tools" in path.name and rng.random() < 0.4 or "chatml-" in path.name and rng.random() < 0.3:
                variables["tools"] = [TOOL] * rng.randint(1, 2)
            if rng.random() < 0.3:
                variables["enable_thinking"] = rng.random() < 0.5
            cases.append(dict(variables=variables, **outcome(path.read_text(), variables)))
        found.append({"template": str(path.relative_to(ROOT)), "cases": cases})
    return {"now": NOW, "templates": found}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compares instead of writing")
    check = parser.parse_args().check
    different = []
    for name, data in (("language.json", language()), ("conversations.json", conversations())):
        text = json.dumps(data, ensure_ascii=False, indent=0, separators=(",", ":")) + "\n"
        if not check:
            (FIXTURES / name).write_text(text)
        elif (FIXTURES / name).read_text() != text:
            different.append(name)
    if different:
        sys.exit(f"{', '.join(different)}: Jinja2 {jinja2.__version__} gives something else; run tests/tokenizer/chat_template/make_chat_fixtures.py")


if __name__ == "__main__":
    main()
