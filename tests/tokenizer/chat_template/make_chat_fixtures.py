#!/usr/bin/env python3
"""Makes tests/tokenizer/chat_template/fixtures: what Jinja2 makes of chat templates, with the settings of Transformers.

  pip install jinja2
  tests/tokenizer/chat_template/make_chat_fixtures.py            # writes language.json and conversations.json
  tests/tokenizer/chat_template/make_chat_fixtures.py --check    # compares them with what this Jinja2 gives

language.json: small templates, one for each construct. conversations.json: random conversations for the built-in families and for
the templates in fixtures/templates. A case has `text`, or `raises` (the template's own message), or `fails`.
"""
import argparse
import copy
import datetime
import functools
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
    "{{ none|selectattr('a')|list }} {{ none|map('upper')|list }} {{ ''|reject|list }} {{ 0|rejectattr('x')|list }} {{ missing|select|list }}",
    '{{ none|list }}',
    '{{ none|join }}',
    '{{ none|length }}',
    '{{ none|first }}',
    '{{ none|dictsort }}',
    '{{ none|sort }}',
    '{{ none|unique|list }}',
    "{{ 5|map('upper')|list }}",
    "{{ none|trim }} {{ none|upper }} {{ none|replace('o', '0') }} {{ none|default('x') }} {{ none|default('x', true) }} {{ none|title }} {{ missing|trim }}| {{ missing|upper }}| {{ missing|join }}| {{ missing|length }} {{ missing|list }} {{ missing|first }}| {{ missing|last }}| {{ missing|sort }} {{ missing|sum }} {{ missing|items|list }} {{ missing|string }}| {{ missing|reverse|list }} {{ missing|max }}|",
    '{{ missing|dictsort }}',
    '{{ missing|abs }}',
    '{{ missing|round }}',
    '{{ missing|indent }}',
    '{{ missing|int }} {{ missing|float }} {{ missing|int(3) }}',
    '{{ missing is callable }} {{ missing == missing2 }} {{ missing == none }} {{ missing is mapping }} {{ missing is string }}',
    "{{ messages|selectattr('role', 'equalto', 'nobody') is true }} {{ 'yes' if messages|selectattr('role', 'equalto', 'nobody') else 'no' }} {{ 'yes' if l|map('string') else 'no' }} {{ 'yes' if d.keys() else 'no' }} {{ 'yes' if {}.items() else 'no' }} {{ 'yes' if range(0) else 'no' }}",
    "{{ (l|map('string'))[0] }}",
    "{{ l|map('string')|length }}",
    '{{ (l|select)[1:] }}',
    '{{ l|select|tojson }}',
    "{{ l|map('string')|last }}",
    '{% set g = l|select %}{{ g|first }} {{ g|list }} {{ g|list }} {{ g|first }}|',
    "{% set g = l|map('string') %}{% for x in g %}{{ x }}{{ loop.length }}{% endfor %}{% for x in g %}{{ x }}{% else %}none{% endfor %}",
    "{{ l|map('string') is sequence }} {{ l|map('string') is iterable }} {{ range(3) is sequence }} {{ d.keys() is sequence }} {{ d.keys() is iterable }} {{ l|reverse is sequence }} {{ 'abc'|reverse is string }} {{ 3 in range(5) }} {{ 'a' in d.keys() }} {{ 1 in d.values() }} {{ 2 in (l|map('int')) }}",
    '{{ range(3) }} {{ range(1, 9, 2) }} {{ range(5)[1] }} {{ range(5)[-1] }} {{ range(5)|length }} {{ range(5)[1:3]|list }} {{ range(3)|last }} {{ range(3) == range(3) }} {{ d.keys() }} {{ d.values() }} {{ d.items() }} {{ d.keys()|length }} {{ d.items()|first }}',
    '{{ d.keys()|tojson }}',
    '{{ range(3)|tojson }}',
    '{{ range(3) + [1] }}',
    '{{ d.items()[0] }}|',
    "{{ '%s and %s' % ('a', 1) }} {{ '%d%%' % 5 }} {{ '%5.2f|%-5s|%05d|%+d|%x|%X|%o|%e|%g' % (3.14159, 'ab', 42, 7, 255, 255, 8, 12345.678, 0.0001) }} {{ '%(a)s %(n)05.1f' % {'a': 'x', 'n': 2.345} }} {{ '%r %s %s' % ('a', none, [1, 'b']) }} {{ '%s' % l }} {{ '%s' % 'x' }} {{ '%c' % 'x' }} {{ '%.2s' % 'abc' }} {{ '%5s|' % u }} {{ '%i' % 3.9 }} {{ 'plain' % {} }} {{ '% d' % 3 }} {{ '%#x' % 255 }}",
    "{{ '%s' % (1, 2) }}",
    "{{ '%s %s' % 1 }}",
    "{{ '%d' % 'a' }}",
    "{{ '%(a)s' % {'b': 1} }}",
    "{{ '%z' % 1 }}",
    "{{ 'x' % 1 }}",
    "{{ '%' % 1 }}",
    "{{ '%s-%s'|format(1, 'b') }} {{ '%(x)s'|format(x=3) }} {{ 'n'|format }}",
    "{{ '%s'|format(1, x=2) }}",
    "{{ '{} {}'.format(1, 'b') }} {{ '{0}{1}{0}'.format('a', 2) }} {{ '{x}-{y}'.format(x=1, y=none) }} {{ '{:>5}|{:<5}|{:^5}|{:*^7}|{:05d}|{:+d}|{:,}|{:.2f}|{:x}|{:#x}|{:b}|{:e}|{:%}|{:10.3f}|{:.3}'.format('a', 'b', 'c', 'd', 42, 7, 1234567, 3.14159, 255, 255, 5, 12345.678, 0.256, 2.5, 'abcdef') }} {{ '{{}}'.format() }} {{ '{0[a]} {0.a} {1[0]}'.format(d, l) }} {{ '{!r:>6}'.format('x') }} {{ '{:,.2f}'.format(1234567.891) }} {{ '{}'.format(true) }} {{ '{:d}'.format(true) }}",
    "{{ '{} {}'.format(1) }}",
    "{{ '{'.format(1) }}",
    "{{ '}'.format(1) }}",
    "{{ '{:d}'.format('a') }}",
    "{{ '{x}'.format(1) }}",
    "{{ '{:5}'.format([1]) }}",
    "{{ '{:.2f}'.format('a') }}",
    "{{ d|tojson(ensure_ascii=true) }} {{ {'\xe9\U0001f600': '\xff\\n\\x7f'}|tojson(ensure_ascii=true) }} {{ d|tojson(indent='\\t') }} {{ d|tojson(indent='') }} {{ d|tojson(indent=0) }} {{ d|tojson(indent=none) }} {{ d|tojson(true, 1) }} {{ d|tojson(separators=(',', ': '), indent=2) }} {{ [[], {}, [1], {'a': []}]|tojson(indent=2) }} {{ {1: 2, none: 3, true: 4, 2.5: 5}|tojson }} {{ 1e20|tojson }} {{ 1e-7|tojson }} {{ (1, 2)|tojson }} {{ true|tojson }} {{ 'a'|tojson }} {{ '\\u2028</script>'|tojson }}",
    '{{ d|tojson(foo=1) }}',
    "{{ {1: 2, 'a': 3}|tojson(sort_keys=true) }}",
    "{{ {'b': 1, 'A': 2, 'c': 0}|dictsort }} {{ {'b': 1, 'A': 2, 'c': 0}|dictsort(true) }} {{ {'b': 1, 'A': 2}|dictsort(by='value') }} {{ {'b': 1, 'A': 2}|dictsort(reverse=true) }} {{ {'b': 1, 'A': 2}|dictsort(false, 'value', true) }} {% for k, v in d|dictsort if k != 'b' %}{{ k }}={{ v }};{% endfor %}",
    "{{ {'a': 1, 2: 3}|dictsort }}",
    "{{ {'a': 1, 'b': 'x'}|dictsort(by='value') }}",
    "{{ d|dictsort(by='z') }}",
    "{{ ls|sort }} {{ ls|sort(case_sensitive=true) }} {{ l|sort(reverse=true) }} {{ l|sort(true) }} {{ messages|sort(attribute='role')|map(attribute='role')|join(',') }} {{ [[2, 'b'], [1, 'c'], [2, 'a']]|sort }} {{ [none, none]|sort }} {{ nested|sort(attribute='0', reverse=true) }} {{ [{'a': 1, 'b': 'y'}, {'a': 1, 'b': 'X'}, {'a': 0, 'b': 'z'}]|sort(attribute='a,b') }} {{ 'hello'|sort }} {{ d|sort }} {{ [2.5, 1, true]|sort }} {{ []|sort }}",
    "{{ [1, 'a']|sort }}",
    '{{ [none, 1]|sort }}',
    "{{ [{}, {'a': 1}]|sort }}",
    "{{ ['a', 'A', 'b', 'a', 1, 1.0, true]|unique|list }} {{ ['a', 'A']|unique(true)|list }} {{ messages|unique(attribute='role')|map(attribute='role')|list }} {{ 'abca'|unique|join }}",
    '{{ [[1], [1]]|unique|list }}',
    "{{ messages|groupby('role') is sequence }} {% for g in messages|groupby('role') %}{{ g.grouper }}:{{ g.list|length }}:{{ g[0] }} {% endfor %}{% for k, items in [{'a': 'x', 'b': 1}, {'a': 'X', 'b': 2}, {'b': 3}]|groupby('a', default='q') %}{{ k }}={{ items }};{% endfor %} {{ nested|groupby(0) }} {{ [{'a': 'x'}, {'a': 'X'}]|groupby('a', case_sensitive=true) }}",
    "{{ [{'a': 1}, {}]|groupby('a') }}",
    "{{ range(7)|batch(3)|list }} {{ range(7)|batch(3, 'x')|list }} {{ range(7)|slice(3)|list }} {{ range(7)|slice(3, 0)|list }} {{ []|batch(2)|list }} {{ []|slice(2)|list }}",
    "{{ l|sum }} {{ messages|map(attribute='content')|map('length')|sum }} {{ [{'a': 1}, {'a': 2.5}]|sum(attribute='a') }} {{ [[1], [2]]|sum(start=[]) }} {{ []|sum }} {{ [{'a': 3}, {'a': 9}]|max(attribute='a') }} {{ ['a', 'B']|max(true) }} {{ ['a', 'B']|min }} {{ 'hello'|max }} {{ l|min }}",
    "{{ ['a']|sum }}",
    "{{ [1, 'a']|max }}",
    "{{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 2.1|round(0, 'ceil') }} {{ 2.9|round(method='floor') }} {{ 5|round }} {{ 42.55|round|int }} {{ -2.5|round }} {{ 7|round(1, 'floor') }}",
    "{{ 'a'|round }}",
    "{{ 1|round(0, 'up') }}",
    "{{ 'a b-c d_e \xe9t\xe9'|wordcount }} {{ ''|wordcount }} {{ 'foo'|center(9) }}| {{ 'foo bar baz qux'|truncate(9) }} {{ 'foo bar baz qux'|truncate(9, true) }} {{ 'foo bar baz qux'|truncate(11) }} {{ 'foo bar baz qux'|truncate(9, false, '..', 0) }} {{ 'short'|truncate(3) }}",
    "{{ '0x1F'|int(base=16) }} {{ '101'|int(0, 2) }} {{ 'zz'|int(7, 16) }} {{ '1e3'|int }} {{ '1e3'|float }} {{ 'inf'|float }} {{ 'nan'|int(4) }} {{ '-5'|int }} {{ 1e3|int }} {{ '12abc'|int }}",
    "{{ {'a': 1}|attr('a') }}| {{ {'a': 1}|attr('items') is callable }} {{ namespace(a=1)|attr('a') }} {{ d|items|list }} {{ d|map('upper')|list }} {{ [['a', 1]]|map('first')|list }} {{ [[3, 1], [2]]|map('sort')|list }} {{ [{'x': {'y': 1}}, {'x': {}}]|map(attribute='x.y', default=0)|list }} {{ nested|map(attribute=1)|list }} {{ ['1', 'b']|map('int', default=9)|list }} {{ ['a']|map('replace', 'a', 'z')|list }} {{ [1.25]|map('round', 1)|list }}",
    "{{ [{}]|map(attribute='a.b')|list }}",
    "{{ [1]|map('nofilter')|list }}",
    "{{ [1]|map(foo='x')|list }}",
    '{{ [1]|map|list }}',
    "{{ 'x' if messages|selectattr('name', 'defined')|list else 'y' }} {{ messages|selectattr('content', 'string')|list|length }} {{ l|select('in', [1, 2])|list }} {{ l|reject('gt', 1)|list }} {{ l|select('lessthan', 3)|list }} {{ l|select('divisibleby', 3)|list }} {{ ['abc', 'xa']|select('in', 'abcd')|list }} {{ l|select('ge', 2)|sum }} {{ messages|rejectattr('content')|list|length }}",
    "{{ 'upper' is filter }} {{ 'nofilter' is filter }} {{ 'odd' is test }} {{ 'notest' is test }} {{ 'x' is escaped }} {{ 1 is lessthan 2 }} {{ 3 is greaterthan(2) }} {{ 'a' is in 'abc' }} {{ 2 is not in [1] }} {{ d.items is callable }} {{ 1 is callable }} {{ '\xc9' is upper }} {{ '\xe9\xdf' is lower }} {{ '1' is lower }} {{ [1] is sameas [1] }} {{ none is sameas none }} {{ true is sameas true }}",
    "{% filter upper %}a{{ n }}b{% endfilter %} {% filter trim|replace('a', 'b') %} aa {% set q = 1 %}{% endfilter %}{{ q }}|",
    "{% macro box(title, open='[') %}{{ open }}{{ title }}: {{ caller() }}]{% endmacro %}{% call box('x') %}in {{ n }}{% endcall %} {% call box(open='(', title='y') %}{% endcall %}",
    '{% macro each(items) %}{% for i in items %}{{ caller(i, loop.index) }};{% endfor %}{% endmacro %}{% call(item, at=0) each(l) %}{{ at }}={{ item }}{% endcall %}',
    "{% macro m() %}{{ 'has' if caller is defined else 'no' }}{% endmacro %}{{ m() }} {% call m() %}{% endcall %}",
    '{% macro m() %}x{% endmacro %}{% call m() %}{% endcall %}',
    '{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}',
    "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }} {{ m() }} {{ m(*[1, 2], **{'y': 3}) }} {{ m(*'ab') }}",
    '{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}',
    '{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}',
    '{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}',
    '{% for x in l %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %} {% macro outer(a) %}{% macro inner(b) %}{{ a }}{{ b }}{% endmacro %}{{ inner(2) }}{% endmacro %}{{ outer(1) }} {{ outer }}',
    '{% for a in [1] %}{% for b in [1] %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}{{ loop.depth }}{% endfor %}',
    "{% for x in [{'v': 1, 'c': [{'v': 2, 'c': [{'v': 3}]}, {'v': 4}]}, {'v': 5}] recursive %}{{ x.v }}.{{ loop.depth }}.{{ loop.index }}{% if x.c %}({{ loop(x.c) }}){% endif %}{% else %}!{% endfor %}",
    "{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }}{{ loop.cycle('a', 'b') }}{{ loop }} {% endfor %}",
    '{% for x in l %}{{ loop(x) }}{% endfor %}',
    '{% for x in l %}{{ loop.foo }}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}',
    "{% for a, (b, c) in [[1, [2, 3]], [4, 'xy']] %}{{ a }}{{ b }}{{ c }};{% endfor %} {% for (a, b) in nested %}{{ a }}{{ b }}{% endfor %} {% set (a, (b, c)) = (1, (2, 3)) %}{{ a + b + c }}",
    '{% for a, b in [[1, 2, 3]] %}{% endfor %}',
    '{% for x in l if x > 1 %}{{ x }}{{ loop.last }}{% else %}none{% endfor %} {% for x in l if x > 9 %}{{ x }}{% else %}none{% endfor %} {% for x in (1, 2) if loop is defined %}{{ x }}{% else %}no loop{% endfor %}',
    '{% set ns = namespace(a=1) %}{% set ns.b %}text{% endset %}{% set ns.a, x = 5, 6 %}{{ ns.b }}{{ ns.a }}{{ x }}',
    "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }} {{ ns.zz is defined }}",
    '{% set d.x = 1 %}',
    '{% set ns = namespace(_a=1) %}',
    '{% set ns = namespace() %}{% set ns._a = 1 %}',
    "{{ dict([('a', 1), ['b', 2]], c=3) }} {{ dict(**d) }} {{ dict() }}",
    '{% set x | upper %}a{% endset %}{{ x }} {% set y %}{% set z = 1 %}q{% endset %}{{ y }}{{ z }}|',
    "{% generation %}a{% set inside = 1 %}{% endgeneration %}{{ inside }}|{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% endif %}{% endfor %}",
    '{% with %}{% set w = 1 %}{{ w }}{% endwith %}{{ w }} {% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}| {% with (a, b) = (1, 2) %}{{ a + b }}{% endwith %}',
    '{{ l.append(1) }}',
    '{{ d.update({}) }}',
    "{{ d.pop('a') }}",
    "{% if false %}{{ l.append(1) }}{{ foo() }}{{ 'a'|nofilter }}{{ 'a' is notest }}{{ 'a'.nomethod() }}{% endif %}ok",
    "{{ foo() if false else 'ok' }} {{ false and foo() }} {{ ('a'|nofilter) if no else 'ok' }}",
    '{{ l.append }}| {{ d.update }}| {{ s.__class__ }}| {{ d._x }}|',
    '{{ s.__class__.x }}',
    "{{ 'a'.nomethod() }}",
    "{{ l.copy() }} {{ d.copy().a }} {{ (1, 2).index(2) }} {{ (1, 1).count(1) }} {{ [1, [2]].index([2]) }} {{ d.get(1) }} {{ {1: 'a', 'b': 2, none: 3} }} {{ {1: 'a'}[1] }} {{ {1: 'a'}.get(true) }} {{ 1 in {1: 2} }} {{ {1: 'a', true: 'b'} }} {% for k in {0: 1, 512: 2} %}{{ k + 1 }} {% endfor %}{{ {0: 'x', 5: 'y'}|dictsort }} {{ {2: 1}.items()|list }}",
    '{{ {[]: 1} }}',
    '{{ d.get([]) }}',
    '{{ [] in d }}',
    "{{ 'abc'.center(8, '*') }} {{ 'abc'.center(4) }}| {{ 'abcd'.center(7) }}| {{ 'a'.ljust(3, '.') }} {{ 'a'.rjust(3) }} {{ '-7'.zfill(4) }} {{ '7'.zfill(3) }} {{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('x') }} {{ 'abc'.rpartition('x') }} {{ 'a\\tb'.expandtabs(4) }} {{ 'aB'.swapcase() }} {{ 'abcabc'.rindex('c') }} {{ 'abcabc'.find('a', 1) }} {{ 'abcabc'.count('a', 1, 4) }} {{ 'abcabc'.index('c', -2) }} {{ 'abc'.startswith('b', 1) }} {{ 'abc'.endswith('b', 0, 2) }} {{ 'abc'.find('', 9) }} {{ 'abc'.rfind('c', 0, -1) }}",
    "{{ 'a'.center(3, 'xx') }}",
    "{{ 'a'.partition('') }}",
    "{{ 'abc'.index('z') }}",
    "{{ 'abc'.center() }}",
    "{{ u.upper() }} {{ '\xc9T\xc9 \u0130'.lower()|length }} {{ 'stra\xdfe'.upper() }} {{ '\xe9a \xe9b'.title() }} {{ '\xe9A'.capitalize() }} {{ '\xc9a'.swapcase() }} {{ '\u01c6'.title() }} {{ 'o\u2019brien'.title() }} {{ '\u65e5\u672c'.isalpha() }} {{ '\u0663'.isdigit() }} {{ '\xb2'.isdigit() }} {{ '\xb2'.isdecimal() }} {{ '\xbd'.isnumeric() }} {{ 'Ab'.istitle() }} {{ 'AB'.isupper() }} {{ 'a1'.islower() }} {{ '1'.isupper() }} {{ 'a_1'.isidentifier() }} {{ '1a'.isidentifier() }} {{ 'abc'.isascii() }} {{ u.isascii() }} {{ ''.isascii() }} {{ 'a\\n'.isprintable() }} {{ '\u041f\u0440\u0438'|lower }}",
    "{{ 1 if 2 }} {{ 1 < 2 < 3 == 3 }} {{ 1 < 3 > 2 }} {{ (1, 2) < (1, 3) }} {{ [1, 'a'] < [2, 3] }} {{ [1] < [1, 0] }} {{ 'a' ~ [1] ~ (2,) ~ {'x': none} }} {{ - -1 }} {{ +3 }} {{ +true }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ 7 // -2 }} {{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1e3 }} {{ 1.5e-3 }} {{ 100000000000000000.0 }} {{ 1e16 }} {{ 0.1 + 0.2 }} {{ 1e22 }} {{ 123456789.123 }} {{ 3.0 }} {{ 5 / 2 }} {{ 6 / 2 }}",
    "{{ -'a' }}",
    '{{ +none }}',
    '{{ [] < {} }}',
    '{{ {} < {} }}',
    '{{ (1,) < [1] }}',
    "{{ '\\x41\\101\\u00e9\\t\\\\\\q' }}",
    "{{ nested.0.1 }} {{ {'a': [[1, 2], [3]]}.a.0.1 }}",
    "{{ ()|length }} {{ (1,) }} {{ [1, [2, (3,)], {'a': none}] }} {{ 1, 2 }} {{ [] is sequence }} {{ {'a': 1,} }} {{ [1, 2,] }} {{ ('a' 'b') }}",
    "{{ 'a'|safe + '<' }} {{ '<' + 'a'|safe }} {{ '<' ~ 'a'|safe }} {{ ('<'|safe).strip() + '&' }} {{ '<b>'|e }} {{ '<b>'|escape|escape }} {{ '<b>'|forceescape }} {{ '<'|safe is escaped }} {{ ('a'|safe) * 2 + '>' }} {{ ['<']|map('escape')|join('<') }} {{ ('<'|safe|upper) + '<' }} {{ d|tojson|safe }} {{ '<'|e|replace('&', '&') }} {{ ['a'|safe] }} {{ '%s'|format('<') }} {{ 'x' in 'xy'|safe }} {{ none|e }}",
    "{{ 'a'|first|upper }} {{ l|first + 1 }} {{ 'abc'[1:]|upper }} {{ 'abc'|list|reverse|join }} {{ ('a', 'b')|join('-') }} {{ [1, none, true, 2.0]|join(',') }} {{ l|join(none) }} {{ l|join(0) }} {{ messages|join(', ', attribute='role') }} {{ {'a': 1, 'b': 2}|join('/') }} {{ 'a.b'|replace('.', '') }} {{ 5|replace(5, 6) }} {{ 'aaa'|replace('a', 'b', count=1) }}",
    "{{ strftime_now('%Y-%m-%d %H:%M:%S %A %B %j %%') }} {{ strftime_now('%-d %b %y') }}",
    '{{ raise_exception() }}',
    '{{ raise_exception(1) }}',
    "{{ raise_exception(message='no') }}",
    '{{ raise_exception(missing) }}',
    '{{ caller }}| {{ loop }}|',
    "{{ ('x',)|first }} {{ d['items'] }} {{ d.items() is iterable }} {{ messages[-1]['content'] == '' }} {{ messages[0]['role'][0] }} {{ messages[1:][0].role }} {{ messages[::-1][0].role }} {{ messages[99] is defined }} {{ l[1.0] }}| {{ l['a'] }}| {{ 'abc'['x'] }}| {{ 5[0] }}|",
    '{{ d[0:1] }}',
    "{{ none.x }}| {{ none['x'] }}| {{ 5 .x }}|",
    '{{ none.x.y }}',
    "{% if l %}a{% endif %}{% if not {} %}b{% endif %}{% if 0.0 %}c{% endif %}{% if '0' %}d{% endif %}{% if none or [] or 'x' %}e{% endif %}{% if missing %}f{% endif %}",
    'a{% raw %} {{ x }} {% endraw +%}\n b\n{%- raw %}c{% endraw -%}\n d',
    '{% if true -%}\n  a\n{%- else -%} b {%- endif %}\n\n c {#- x -#} d\n',
    '   {%- if true %} a{% endif %}\n\t{% if true %}b{% endif %}\n',
    "{{- ' x ' -}}   y   {{- 'z' }}  \n  {%+ if true %}q{% endif %}\n",
    '\n{% set a = 1 %}\n\n{{ a }}\n\n',
    '{% set a %}\n x\n{% endset %}\n|{{ a }}|',
    '{#+ c +#}x\n{# d #}\ny',
    'a\r\nb\rc',
    '{% for x in l -%}\n {{ x }}\n{% endfor -%}\n end',
    '{%- for x in l %}\n  {{- x }}\n{% endfor %}',
    "x {{ '{{' }} {{ '}}' }} {{ '%}' }} {% set q = '%}' %}{{ q }}",
    "{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a':1}}}",
    '{{ "a\\"b" }} {{ \'a\\\'b\' }} {{ "it\'s" }} {{ [\'it\\\'s\', "q\\"", \'b\\\\\', \'n\\n\'] }} {{ [\'\\x00\\x1f\\x7f\xa0\u200b\xe9\U0001f600\'] }}',
    '{% macro m() %}[{{ x }}{{ loop is defined }}]{% endmacro %}{% for x in l %}{{ m() }}{% endfor %}',
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


class TemplateDict:
    """The global `dict`, which has no methods that reach into Python."""

    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)


class TemplateNamespace(jinja2.utils.Namespace):
    """A namespace that takes no names which begin with an underscore."""

    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attributes = dict(*args, **kwargs)
        for name in attributes:
            TemplateNamespace.check(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name, value):
        TemplateNamespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"not a name of a namespace: {name!r}")


@functools.lru_cache(maxsize=1)
def environment():
    """As Transformers makes it, but for the messages of errors."""
    def raise_exception(message):
        raise TemplateRaised(message)

    def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(text):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(text)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                         extensions=[GenerationTag, jinja2.ext.loopcontrols])
    made.filters["tojson"] = to_json
    made.globals.update(raise_exception=raise_exception, strftime_now=strftime_now, dict=TemplateDict(),
                        namespace=TemplateNamespace)
    return made


def outcome(source, variables):
    try:
        template = environment().from_string(source)
    except jinja2.TemplateError:
        return {"fails": True}
    return outcome_of(template, variables)


def outcome_of(template, variables):
    """What a compiled template gives."""
    try:
        return {"text": template.render(**copy.deepcopy(variables))}  # indent changes a list that it gets
    except TemplateRaised as error:
        return {"raises": str(error)}
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError):
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
                         "add_generation_prompt": rng.random() < 0.6, "tools": None, "documents": None}
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
