"""The tables of completion.bash, from the help texts of the commands. Pure: installed_files.py writes the file."""
import re
import shlex

OPTION = re.compile(r"--(?P<name>[a-z][\w-]*)(?:[ =](?P<value>[^\s\[\]-][^\s\[\]]*))?")


def usage_of(text):
    """The part of a help text that lists its options: with argparse that list, else the lines before the first sentence."""
    listed = text.partition("\noptions:\n")[2]
    if listed:
        return "\n".join(re.findall(r"^  (?:-\w, )?(--.*?)(?:  .*)?$", listed, re.MULTILINE))
    return re.match(r"(?:(?:coppice | ).*\n)*", text)[0]


def kind_of(value):
    """What completion.bash offers for a value that the usage calls so."""
    words = value.split("|")
    if any(word.startswith("FILE") for word in words):
        return "FILE"
    if "DIR" in words:
        return "DIR"
    return " ".join(words) if all(re.fullmatch(r"[a-z][a-z0-9_]*", word) for word in words) else "ANY"


def options_of(text):
    """{option: what its value may be, or None if it has none}"""
    return {f"--{match['name']}": match["value"] and kind_of(match["value"]) for match in OPTION.finditer(usage_of(text))}


def table(name, entries):
    return "\n".join([f"declare -gA {name}=(", *(f"  [{shlex.quote(key)}]={shlex.quote(value)}" for key, value in entries.items()), ")", ""])


def tables(helps):
    """helps: {command: its help text}"""
    words, values = {}, {}
    for command, text in helps.items():
        options = options_of(text)
        own = sorted(set(re.findall(rf"^coppice {command} ([a-z]+)\b", text, re.MULTILINE)))  # coppice models get
        words[command] = " ".join([*own, *sorted({*options, "--help"})])
        values.update({f"{command} {option}": value for option, value in options.items() if value})
    return table("_coppice_words", words) + table("_coppice_values", values)
