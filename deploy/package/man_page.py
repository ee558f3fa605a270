"""Manual pages in man(7), from the texts that --help prints. Pure: installed_files.py runs the programs and writes the files."""
import re
import textwrap

ENTRY = re.compile(r"  --([\w-]+)(?:\s+(.*))?$")
LINE = 70  # characters that fit on a page


def escaped(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def quoted(text):
    return '"' + escaped(text).replace('"', '\\(dq') + '"'


def head(name, version, date, about):
    return [f'.TH {name.upper()} 1 {date} "Coppice {version}" "Coppice"', ".SH NAME", f"{escaped(name)} \\- {escaped(about)}"]


def tail(files, also):
    lines = [".SH FILES"]
    for path, what in files:
        lines += [".TP", f".I {escaped(path)}", escaped(what)]
    return [*lines, ".SH SEE ALSO", ",\n".join(f".BR {escaped(page)} (1)" for page in also).replace(" (1),", " (1),")]


def sentence(text):
    """The first sentence, as a line of `apropos`: without its full stop, in lower case if it begins with an ordinary word."""
    first = re.match(r".*?(?=\.(?:\s|$)|$)", text, re.DOTALL)[0].replace("\n", " ")
    return first if re.match(r"[A-Z][A-Z]", first) else first[0].lower() + first[1:]


def groups_of(text):
    """(what the program does, [(title of a group, [(flag, its text)])]) of a program's --help."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if re.match(r"\S.*:$", line))
    about = "\n".join(lines[:start]).partition(": ")[2].strip()
    groups = []
    for line in lines[start:]:
        entry = ENTRY.match(line)
        if entry:
            groups[-1][1].append((entry[1], [entry[2] or ""]))
        elif re.match(r"\S.*:$", line):
            groups.append((line[:-1], []))
        elif line.strip():
            groups[-1][1][-1][1].append(line.strip())
    return about, [(title, [(flag, " ".join(words).strip()) for flag, words in entries]) for title, entries in groups]


def program_page(name, version, date, text, files, also):
    """The page of a program with a table of flags."""
    about, groups = groups_of(text)
    lines = [*head(name, version, date, sentence(about)), ".SH SYNOPSIS", f".B {escaped(name)}", "[\\fI\\-\\-flag\\fR[\\fB=\\fIvalue\\fR]]...",
             ".SH DESCRIPTION", escaped(about), ".SH OPTIONS"]
    for title, entries in groups:
        lines.append(f".SS {quoted(title)}")
        for flag, what in entries:
            lines += [".TP", f".B \\-\\-{escaped(flag)}", escaped(what)]
    lines += [".SH EXIT STATUS", "0 at a regular end, 1 when the program could not do its work, 2 when a flag is wrong. The reason is on",
              "standard error, in lines that begin with the name of the program."]
    return "\n".join([*lines, *tail(files, also)]) + "\n"


def command_page(name, version, date, about, commands, files, also):
    """The page of the command with commands of its own: [(name, what it does, its help text)]."""
    lines = [*head(name, version, date, about), ".SH SYNOPSIS", f".B {escaped(name)}", "\\fICOMMAND\\fR [\\fIARGUMENT\\fR...]",
             ".SH DESCRIPTION", "One command for what users do with a cluster of Coppice, which serves large language models with speculative",
             "beam decoding.", f".B {escaped(name)} help", "lists the commands.", ".SH COMMANDS"]
    for command, what, text in commands:
        lines += [f".SS {quoted(f'{name} {command}')}", f"{escaped(what[0].upper() + what[1:])}.", *help_lines(text)]
    lines += [".SH EXIT STATUS", "That of the command; 2 when the command or an argument is unknown."]
    return "\n".join([*lines, *tail(files, also)]) + "\n"


def help_lines(text):
    """A help text: its usage and what is indented as it is, in lines that fit on a page; else a paragraph for lines up to one that ends
    a sentence."""
    text = text.removeprefix("usage: ")
    usage = re.match(r"(?:(?:coppice | ).*\n)*", text)[0]
    yield from as_it_is(re.sub(r"\n {2,}", " ", usage).splitlines())
    lines = text[len(usage):].splitlines()
    while lines:
        block = [lines.pop(0)]
        if not block[0]:
            continue
        kept = block[0].startswith(" ")
        while lines and lines[0] and lines[0].startswith(" ") == kept and (kept or not block[-1].endswith(".")):
            block.append(lines.pop(0))
        if kept:
            yield from as_it_is(textwrap.dedent("\n".join(block)).splitlines())
        else:
            yield from (".PP", escaped(" ".join(block)))


def as_it_is(lines):
    """Lines that are not filled. Those that are too long are broken at spaces."""
    yield from (".PP", ".nf", ".RS 2")
    for line in lines:
        yield from map(escaped, textwrap.wrap(line, LINE, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False))
    yield from (".RE", ".fi")
