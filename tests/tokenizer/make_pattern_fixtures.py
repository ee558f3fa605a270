#!/usr/bin/env python3
"""Makes tests/tokenizer/fixtures/patterns.json: what the reference library finds with split patterns of all kinds in texts of all kinds.

  pip install tokenizers
  tests/tokenizer/make_pattern_fixtures.py            # writes it
  tests/tokenizer/make_pattern_fixtures.py --check    # compares it with what this library gives

A pattern has the matches in each text, as the lengths of what is between them and of the matches by turns, in bytes; null: the
library refuses the pattern. `served`: this tokenizer must serve it. The others it may refuse, but not read in another way.
"""
import argparse
import json
import pathlib
import sys

FIXTURE = pathlib.Path(__file__).resolve().parent / "fixtures/patterns.json"

SERVED = [
    # of known models
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Ll}&&[^\p{Han}]]+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[一-龥぀-ゟ゠-ヿ]+", r"\p{N}{3}|\p{N}", r"(?=(\d{3})+(?!\d))", r" ?[^(\s|[.,!?…。，、।۔،])]+", r"\d{1,3}(?=(?:\d{3})*\b)",
    # the ends of lines and of the text
    r"b$", r"^b", r"$\n", r"\s+$", r"\n$", r"^\s*", r"a\Z", r"\n\Z", r"a\z", r"\Aa", r"(?m:a.b)", r".+", r"(?m).+", r"^.*$", r"[^\n]+$",
    # classes
    r"[a[bc]]+", r"[a-z&&[^aeiou]]+", r"[^a-z&&[b-d]]+", r"[a-z&&b-d&&c]+", r"[\w&&[^\d]]+", r"[^\W\d]+", r"[[^a-c]&&[^\s]]+",
    r"[a&b]+", r"[[:alpha:]]+", r"[[:^alpha:]]+", r"[[:digit:][:space:]]+", r"[[:upper:]][[:lower:]]*", r"[[:alnum:]_]+", r"[\]\-]",
    r"[a-]+", r"[-a]+", r"[^\x{4e00}-\x{9fff}]+", r"[\u0061-\u0063]+", r"[^a[^b]]", r"[\h]+", r"[\D]+", r"[\p{^L}]+", r"[[:blank:]]+",
    # escapes
    r"\h+", r"\H+", r"\R", r"\N+", r"\O", r"\v+", r"\w+", r"\W+", r"\d+", r"\S+", r"\ba\w*", r"\b.", r"\B.", r"[\w]+", r"[^\W]+", r"[\W]+", r"\p{Word}+", r"\p{Alnum}+", r"\p{Digit}+", r"\Ba", r"\p{Letter}+", r"\p{^N}+",
    r"\P{L}+", r"\p{Alphabetic}+", r"\p{Greek}+", r"\p{Hangul}+|\p{Cyrillic}+", r"\p{LC}+", r"\p{White_Space}+", r"\x41\x{e9}?",
    # repetition
    r"a{2}+", r"\p{N}{1,3}+", r"a{2}?", r"a{,2}b", r"a{2,}?", r"a{1,2}?b", r"a{2}{2}", r"a++b", r"a?+a", r"a{x}|a{", r"(?:ab)*+a", r"\s++$",
    # groups and options
    r"(?<=a)b|(?<!a)c", r"(?<=a|bc)d", r"(?<w>a)b", r"(?>a+)b", r"a(?#comment)b", r"a(?i)b|c", r"(?i)a(?-i)b", r"(?i:b)c|(?i-m:C)",
    r"(?i:[k-s]+)", r"(?i:\p{L}a)", r"(?i:[^a]+)", r"(a)|b|",
]
OTHERS = [
    r"[\p{Word}]+", r"[[:^word:]]+", r"(?i:(?:xs)s)", r"(?i:(?:s|x)s)", r"(?i:(s)s)", r"(?i:s+s)", r"(?i:s{2})", r"(?i:s)(?i:s)",
    r"(?i:ss)", r"(?i:s(?:s))", r"(?i:fi|st)", r"(?i:é)", r"(?i:[à-ü])+", r"(?i:\p{Lu})+", r"[[:punct:]]+", r"[[:print:]]+", r"[]a]+",
    r"[a-c-e]+", r"x{2,1}", r"x**", r"a*{2}", r"(?<=a+)d", r"\p{In_Basic_Latin}", r"\pL", r"\061", r"(a)\1", r"(?<n>a)\g<n>", r"\X", r"\y",
    r"(?x: a b )", r"\K", r"a\Kb", r"\G a", r"(?W:\w)+", r"\Qa.\E", r"\cA", r"(?~ab)", r"(?s:a.b)", r"(?P<n>a)b", r"[a-\d]+", r"[\w-a]+",
    r"\xE9", r"\xC3\xA9", r"(a", r"a)", r"[a", r"*a", r"{2}", r"a{3,1}", r"[z-a]", r"\p{Nothing}", r"(?i:s(?#)s)", r"(?(1)a|b)", r"(?a:\w)",
    r"\p{Emoji}", r"[[:word:]]+", r"(?^i:a)", r"\M-a", "\\", r"(?<=(?i)a)b", r"a{100000}", r"[\R]", r"[[.a.]]", r"[^]", r"[]", r"[&&]",
    r"(?i:ſ)", r"(*FAIL)", r"(?|a|b)", r"(?R)", r"\E", r"[a\Q]+", r"(?U)a+", r"(?J)a",
]
TEXTS = [
    "", "a", "ab\ncd", "ab\ncd\n", "\n", "\n\n", "a\n\n", "a\nb\n", " \n \n", "a \n", "a\r\nb\rc", "abcabc", "aaaaa", "aaab aab ab b", "abc]d-e^f",
    "The forest's trees", "IT'S they'LL I'm", "12345678", "1 234,567.89", "0af 0xFF g", "naïve café", "e\u0301a\u030a", "森の木は切られても",
    "한글 Лес", "αβγ ΑΒΓ \u1fb3", "a\u00a0b\u2003c\u3000d", "a\u0085b\u2028c", "\u000b\u000c\t", "ß SS ſs ﬁ fi ﬆ", "kſKS K", "ǅ ǈ Ⅷ ⓐ ½",
    "a_b-c d", "x{2} a{x}a{", "{,2}b", "!?.,;: $+<=>^`|~", "«»…—", "😀👍🏽 🏳️", "(a)[b]{c}", "\\d\\w", "aB C c ac aC", "AB Ab aB ab", "ad bcd aad d",
    "a\u200bb\u200dc", "\u180ea", "say \"hi\" 'x'", "/path/to/x.py", "CamelCase snake_case", "    indent\n\treturn x", "xx xxx xxxx", "Qa.E QaE",
    "\u0001\u007f\u001c", "٣٤ ²³", "a|b||c", "&& & &", "\u0378\U0010ffff", "é É è È", "trailing  ", "ba ab\nba",
]


def matches(split, text):
    """The lengths between the matches and of the matches."""
    lengths, done = [], 0
    for _, (begin, end) in split.pre_tokenize_str(text):
        begin, end = (len(text[:at].encode()) for at in (begin, end))
        lengths += [begin - done, end - begin]
        done = end
    return lengths


def entry(pattern, served):
    from tokenizers import Regex, pre_tokenizers
    try:
        split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    except Exception:  # the library has no other kind
        return dict(pattern=pattern, served=served, matches=None)
    return dict(pattern=pattern, served=served, matches=[matches(split, text) for text in TEXTS])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    patterns = [entry(p, True) for p in SERVED] + [entry(p, False) for p in OTHERS]
    lines = ",\n".join(json.dumps(p, ensure_ascii=False, separators=(",", ":")) for p in patterns)
    text = f'{{"texts":{json.dumps(TEXTS)},\n"patterns":[\n{lines}]}}\n'
    if not args.check:
        FIXTURE.write_text(text, encoding="utf8")
    elif text != FIXTURE.read_text(encoding="utf8"):
        sys.exit(f"{FIXTURE.name} is not what this library gives")


if __name__ == "__main__":
    main()
