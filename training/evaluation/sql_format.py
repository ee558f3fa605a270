"""The format of a WikiSQL query as a grammar: its columns are those of the prompt and its values words of the question. What a program
that asks for SQL knows before it asks.

A query is SELECT, an aggregate or none, a column, and conditions on other columns, one for each at most, in the order of the prompt. A
value is a part of the question, whole words, in quotes if it has white space; after < and > it begins with a number. All 11,338 such
values of the training split do, and no query of it has a condition on the column that it selects."""
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
    queries = [f"{literal(column)} where-{i}?" if len(columns) > 1 else literal(column) for i, column in enumerate(columns)]
    rules = ['root ::= " SELECT " (aggregate " ")? (' + " | ".join(queries) + ")",
             "aggregate ::= " + " | ".join(map(literal, AGGREGATES))]
    rules += [f"on-{i} ::= {literal(column)} (\" = \" value | \" \" [<>] \" \" number)" for i, column in enumerate(columns)]
    for i in range(len(columns)):
        others = [j for j in range(len(columns)) if j != i]
        if others:
            rules.append(f'where-{i} ::= " WHERE " from-{i}-{others[0]}')
        for j, after in zip(others, others[1:] + [None]):
            rules.append(f"from-{i}-{j} ::= on-{j}" + ("" if after is None else f' (" AND " from-{i}-{after})? | from-{i}-{after}'))
    return "\n".join(rules + _values(question)) + "\n"


def _values(question):
    """The rules `value` and `number`: runs of pieces of the question that begin and end with a piece that is no white space. Words and
    numbers are one piece, every other character is one."""
    pieces = re.findall(r"\w+|\s+|[^\w\s]", question)
    while pieces and pieces[-1].isspace():
        pieces.pop()
    blank = [piece.isspace() for piece in pieces]
    rules, bare, quoted, numbers = [], [], [], []
    for i, piece in enumerate(pieces):
        if blank[i]:
            continue
        more = i + 1 < len(pieces)
        follows = f"{literal(pieces[i + 1])} words-{i + 2}" if more and blank[i + 1] else f"words-{i + 1}"
        rules.append(f"words-{i} ::= {literal(piece)}" + (f" ({follows})?" if more else ""))
        rules.append(f"bare-{i} ::= {literal(piece)}" + (f" bare-{i + 1}?" if more and not blank[i + 1] else ""))
        bare.append(f"bare-{i}")
        if True in blank[i:]:
            rules.append(f"quoted-{i} ::= {literal(piece)} " + (follows if blank[i + 1] else f"quoted-{i + 1}"))
            quoted.append(f"quoted-{i}")
        if re.match(r"[-+$.]?\d", "".join(pieces[i:i + 2])):
            numbers.append(i)
    if not bare:
        return ['value ::= "\\"\\""', "number ::= value"]
    either = lambda names: " | ".join(names)  # noqa: E731
    value = either(bare) + (' | "\\"" (' + either(quoted) + ') "\\""' if quoted else "")
    number = [f"bare-{i}" for i in numbers] + [f'"\\"" quoted-{i} "\\""' for i in numbers if f"quoted-{i}" in quoted]
    return [f"value ::= {value}", "number ::= " + (either(number) if number else "value")] + rules
