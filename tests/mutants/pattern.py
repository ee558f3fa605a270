"""Finds the place of a planted bug in a file and writes the bug there. Files and patterns are compared token by token: spaces, line
breaks and comments do not count, and neither do namespaces, `sampling::Foo` and `Foo` being one name.

`in` names the function or other declaration that holds the place: `Run`, `Engine::Run`, `kTable`; in Python `ratio`,
`Turn.ratio`. Its outer names may be left out."""
import bisect
import dataclasses
import functools
import re

C_FILES = (".cc", ".h", ".cu", ".proto")
C_TOKEN = re.compile(r"""
    (?P<comment> //[^\n]* | /\*.*?\*/)
  | (?P<text> \b(?:u8|[uUL])?R"(?P<mark>[^()\s\\]*)\(.*?\)(?P=mark)" | (?:\b(?:u8|[uUL]))?"(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])+')
  | (?P<number> \.?\d(?:[eEpP][+-]|'?[\w.])*)
  | (?P<word> [A-Za-z_]\w*)
  | (?P<sign> <<=|>>=|<=>|\.\.\.|->|::|\+\+|--|<<|>>|[<>=!]=|&&|\|\||\#\#|[-+*/%&|^]=|\S)
""", re.VERBOSE | re.DOTALL)
SCRIPT_TOKEN = re.compile(r"""
    (?P<comment> \#[^\n]*)
  | (?P<text> (?:\b[rbfuRBFU]{1,2})?(?:\"\"\".*?\"\"\" | '''.*?''' | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'))
  | (?P<number> \.?\d[\w.]*)
  | (?P<word> [A-Za-z_]\w*)
  | (?P<sign> \*\*=|//=|<<=|>>=|\.\.\.|->|:=|\*\*|//|<<|>>|[<>=!]=|[-+*/%&|^@]=|\S)
""", re.VERBOSE | re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
# Words before a parenthesis that name no function.
CONTROL = set("if for while switch catch return".split())
NO_FUNCTION = set("sizeof decltype alignas noexcept requires defined void bool int float double char auto const".split())
ATTRIBUTE = re.compile(r"__\w+__|[A-Z][A-Z0-9_]{2,}")
OPENING, CLOSING = set("([{"), set(")]}")


class PatternError(Exception):
    pass


@dataclasses.dataclass
class Token:
    text: str
    begin: int           # of the qualifier, if it has one
    end: int
    qualifier: str = ""  # "sampling::" of sampling::Foo
    word: bool = False
    directive: bool = False  # in a line of the preprocessor


@functools.lru_cache(maxsize=None)
def tokens_of(text, path):
    """The tokens without comments."""
    is_c = path.endswith(C_FILES)
    found = []
    for match in (C_TOKEN if is_c else SCRIPT_TOKEN).finditer(text):
        if match.lastgroup == "comment":
            continue
        token = Token(match.group(), match.start(), match.end(), word=match["word"] is not None)
        if is_c and token.word and len(found) >= 2 and found[-1].text == "::" and found[-2].word:
            found.pop()
            outer = found.pop()
            token.qualifier, token.begin = f"{outer.qualifier}{outer.text}::", outer.begin
        found.append(token)
    if is_c:
        lines = [match.span() for match in DIRECTIVE.finditer(text)]
        begins = [begin for begin, _ in lines]
        for token in found:
            line = bisect.bisect_right(begins, token.begin) - 1
            token.directive = line >= 0 and token.begin < lines[line][1]
    return found


@dataclasses.dataclass(frozen=True)
class Scope:
    names: tuple  # the outer names and its own
    begin: int    # its first token, of its head
    end: int      # behind its last token


def name_of(head):
    """The names of the declaration whose tokens before { are these; () if it has none."""
    depth = 0
    if head and head[0].text == "template":  # what is between < and > of it names nothing
        for i, token in enumerate(head):
            depth += token.text.count("<") - token.text.count(">") if set(token.text) <= {"<", ">"} else 0
            if i > 0 and depth <= 0:
                return name_of(head[i + 1:])
    kind = 0
    for i, token in enumerate(head):
        text = token.text
        if text == "operator":
            sign = "".join(t.text for t in head[i + 1:i + 3] if t.text not in "()") or "()"
            return (*token.qualifier.split("::")[:-1], "operator" + sign)
        before = head[i - 1] if i else None
        if depth == 0 and text == "(" and before and before.word:
            if before.text in CONTROL or before.text == "constexpr":
                return ()
            if before.text not in NO_FUNCTION and not ATTRIBUTE.fullmatch(before.text):
                return (*before.qualifier.split("::")[:-1], before.text)
        if depth == 0 and text == "=":
            words = [t for j, t in enumerate(head[:i]) if t.word and not (j and head[j - 1].text == "[")]
            return (words[-1].text,) if words else ()
        if depth == 0 and text in ("class", "struct", "union", "enum", "namespace"):
            kind = i + 1
        depth += (text in OPENING) - (text in CLOSING)
    if kind:
        end = next((i for i in range(kind, len(head)) if head[i].text in (":", "<")), len(head))
        words = [t for t in head[kind:end] if t.word and t.text not in ("final", "class", "struct") and not ATTRIBUTE.fullmatch(t.text)]
        return (*words[-1].qualifier.split("::")[:-1], words[-1].text) if words else ()
    return ()


def c_scopes(tokens):
    found, open_braces = [], []  # (names, first token of the head, parentheses around it)
    begin, parentheses = 0, 0
    for i, token in enumerate(tokens):
        if token.directive:
            begin += begin == i
            continue
        around = open_braces[-1][2] if open_braces else 0
        if token.text in ("(", "["):
            parentheses += 1
        elif token.text in (")", "]"):
            parentheses -= 1
        elif token.text == "{":
            outer = open_braces[-1][0] if open_braces else ()
            head = [t for t in tokens[begin:i] if not t.directive]
            open_braces.append((outer + (name_of(head) if parentheses == around else ()), begin, parentheses))
            begin = i + 1
        elif token.text == "}" and open_braces:
            names, head_begin, parentheses = open_braces.pop()
            if names != (open_braces[-1][0] if open_braces else ()):
                found.append(Scope(names, head_begin, i + 1))
            more = i + 1 < len(tokens) and tokens[i + 1].text in (",", "{")  # after a member that the constructor makes with braces
            begin = head_begin if more else i + 1
        elif token.text == ";" and parentheses == around:
            begin = i + 1
        elif token.text == ":" and i and tokens[i - 1].text in ("public", "private", "protected"):
            begin = i + 1
    return found


def script_scopes(text, tokens):
    """Functions and classes of Python, by the indentation of the lines."""
    found, open_scopes = [], []  # (indent, names, first token)
    begins = {token.begin: i for i, token in enumerate(tokens)}
    last_line_end = 0
    for i, token in enumerate(tokens):
        line = text.rfind("\n", 0, token.begin) + 1
        if line < last_line_end or text[line:token.begin].strip():
            continue  # not the first token of its line
        if token.text[0] in ")]}":
            continue  # of a declaration over several lines
        indent = token.begin - line
        while open_scopes and indent <= open_scopes[-1][0]:
            _, names, first = open_scopes.pop()
            found.append(Scope(names, first, i))
        start = i + 1 if token.text == "async" else i
        if start + 1 < len(tokens) and tokens[start].text in ("def", "class"):
            outer = open_scopes[-1][1] if open_scopes else ()
            open_scopes.append((indent, outer + (tokens[start + 1].text,), begins[token.begin]))
    found += [Scope(names, first, len(tokens)) for _, names, first in open_scopes]
    return found


@functools.lru_cache(maxsize=None)
def scopes_of(text, path):
    tokens = tokens_of(text, path)
    return c_scopes(tokens) if path.endswith(C_FILES) else script_scopes(text, tokens)


def places(text, path, old, scope=""):
    """Where the pattern is: lists of the file's tokens that it matches. PatternError if there is no such scope."""
    tokens = tokens_of(text, path)
    wanted = [token.text for token in tokens_of(old, path)]
    if not wanted:
        raise PatternError("the pattern is empty")
    regions = [(0, len(tokens))]
    if scope:
        names = tuple(re.split(r"::|\.", scope))
        regions = [(s.begin, s.end) for s in scopes_of(text, path) if s.names[-len(names):] == names]
        if not regions:
            raise PatternError(f"nothing is declared as {scope}")
    texts = [token.text for token in tokens]
    starts = {i for begin, end in regions for i in range(begin, end - len(wanted) + 1)
              if texts[i] == wanted[0] and texts[i:i + len(wanted)] == wanted}
    return [tokens[i:i + len(wanted)] for i in sorted(starts)]


def qualified(new, path, pattern, matched):
    """`new` with the qualifiers that its names have in the file."""
    of_file = {}
    for wanted, found in zip(pattern, matched):
        if wanted.qualifier != found.qualifier:
            of_file[wanted.qualifier + wanted.text] = found.qualifier + found.text
    parts, end, before = [], 0, ""
    for token in tokens_of(new, path):
        name = of_file.get(token.qualifier + token.text)
        if name is not None and before not in (".", "->", "::"):
            parts += [new[end:token.begin], name]
            end = token.end
        before = token.text
    return "".join(parts) + new[end:]


def planted(text, path, old, new, scope=""):
    """The text of the file with `new` in the place of `old`. PatternError unless `old` is in one place."""
    found = places(text, path, old, scope)
    if len(found) != 1:
        raise PatternError(f"the old text occurs {len(found)} times{f' in {scope}' if scope else ''}, expected once")
    matched, = found
    return text[:matched[0].begin] + qualified(new, path, tokens_of(old, path), matched) + text[matched[-1].end:]
