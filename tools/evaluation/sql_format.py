"""The format of a WikiSQL query as a grammar: its columns are those of the prompt and its values words of the question. What a program
that asks for SQL knows before it asks.

A query is SELECT, an aggregate or none, a column, and conditions, each on a column of its own, in the order of the prompt. A value is a
part of the question, whole words, in quotes or not."""
import re

AGGREGATES = ("MAX", "MIN", "COUNT", "SUM", "AVG")


def literal(text):
    """The text as a string of a grammar."""
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escapes.get(c, c) for c in text) + '"'


def sql_grammar(prompt):
    """The grammar of a prompt "columns: a, b\\nquestion: ...\\nsql:", or None if it has another form."""
    match = re.fullmatch(r"columns: (.*)\nquestion: (.*)\nsql:", prompt, re.DOTALL)
    if match is None:
        return None
    columns, question = match.group(1).split(", "), match.group(2)
    if not all(columns):
        return None
    rules = ["root ::= \" SELECT \" (aggregate \" \")? column (\" WHERE \" from-0)?",
             "aggregate ::= " + " | ".join(map(literal, AGGREGATES)),
             "column ::= " + " | ".join(map(literal, columns))]
    for i, column in enumerate(columns):
        last = i + 1 == len(columns)
        rules.append(f"from-{i} ::= {literal(column)} \" \" [=<>] \" \" value" + ("" if last else f" (\" AND \" from-{i + 1})? | from-{i + 1}"))
    return "\n".join(rules + _value(question)) + "\n"


def _value(question):
    """The rules of a value: a run of pieces of the question that begins and ends with a piece that is no white space. Words and numbers
    are one piece, every other character is one."""
    pieces = re.findall(r"\w+|\s+|[^\w\s]", question)
    rules, starts = [], []
    for i in reversed(range(len(pieces))):
        # From piece i on; white space must go on, the last pieces may be missing.
        following = f"words-{i + 1}" if i + 1 < len(pieces) and f"words-{i + 1}" in {name for name, _ in rules} else ""
        if pieces[i].isspace():
            if following:
                rules.append((f"words-{i}", f"{literal(pieces[i])} {following}"))
            continue
        rules.append((f"words-{i}", literal(pieces[i]) + (f" {following}?" if following else "")))
        starts.append(f"words-{i}")
    if not starts:
        return ["value ::= \"\\\"\\\"\""]
    return ["value ::= \"\\\"\" words \"\\\"\" | words", "words ::= " + " | ".join(reversed(starts))] + \
        [f"{name} ::= {body}" for name, body in reversed(rules)]
