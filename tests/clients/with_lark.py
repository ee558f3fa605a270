"""Lark itself reads the texts of grammars in its notation. It needs no server: texts come from coppice-samples."""
# /// script
# dependencies = ["lark"]
# ///
import json
import os
import pathlib
import subprocess

import lark

from checks import check, expect, main

SAMPLES = os.environ.get("COPPICE_SAMPLES") or pathlib.Path(__file__).resolve().parents[2] / "build/release/bin/coppice-samples"
COUNT = int(os.environ.get("COPPICE_EXAMPLES", 40))

GRAMMARS = {
    "sums": r"""
        ?start: sum
        ?sum: product | sum "+" product -> add | sum "-" product -> sub
        ?product: atom | product "*" atom -> mul | product "/" atom -> div
        ?atom: NUMBER -> number | "-" atom -> neg | NAME -> var | "(" sum ")"
        %import common.CNAME -> NAME
        %import common.NUMBER
        %import common.WS_INLINE
        %ignore WS_INLINE
        """,
    "json": r"""
        start: value
        ?value: object | array | ESCAPED_STRING | SIGNED_NUMBER | "true" | "false" | "null"
        array: "[" [value ("," value)*] "]"
        object: "{" [pair ("," pair)*] "}"
        pair: ESCAPED_STRING ":" value
        %import common (ESCAPED_STRING, SIGNED_NUMBER, WS)
        %ignore WS
        """,
    "query": r"""
        start: "select"i columns "from"i table [where] ";"
        columns: "*" | NAME ("," NAME)*
        table: NAME
        where: "where"i NAME OPERATOR (SIGNED_INT | ESCAPED_STRING)
        OPERATOR.2: "=" | "<" | ">" | "!" "="
        NAME: /(?:[a-z]_?){2,8}/i
        %import common (SIGNED_INT, ESCAPED_STRING, WS)
        %ignore WS
        """,
    "counts": r"""
        !start: ("a" | "b")~2..3 ["c" "d"] "e"? line+
        line: "0".."9" (_COMMENT | _LF) -> one
            | list ";"
        list: list "," WORD | WORD
        _COMMENT: "//" /[^\n]/* "\n"
        _LF: "\r"? "\n"
        %import common.WORD
        """,
}


def check_grammar(text):
    run = subprocess.run([SAMPLES, "grammar", str(COUNT), "1"], input=text, text=True, capture_output=True)
    expect(run.returncode == 0, run.stderr.strip())
    parser = lark.Lark(text, lexer="dynamic_complete")  # no terminal must be as long as it could
    for line in run.stdout.splitlines():
        parser.parse(json.loads(line))


def add_check(name, text):
    def one():
        check_grammar(text)
    one.__name__ = name
    check(one)


for each, of_grammar in GRAMMARS.items():
    add_check(each, of_grammar)
main()
