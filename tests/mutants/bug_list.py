"""The list of planted bugs, bugs/*.toml, one file for each folder of the tree: reading it and finding its mistakes."""
import dataclasses
import glob
import os
import re
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
LEAST_BUGS = 60
FIELDS = {"what", "file", "old", "new", "target", "test", "ctest"}
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class ListError(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Bug:
    id: str
    folder: str  # the name of the list's file
    what: str    # the bug in one sentence
    file: str    # from the root of the tree
    old: str     # occurs once in the file
    new: str
    target: str  # what is built
    test: str    # a GoogleTest filter; "" when ctest is given
    ctest: str   # the name of a ctest entry

    def planted_in(self, text):
        """The text of the file with the bug. ListError unless the old text occurs exactly once."""
        count = text.count(self.old)
        if count != 1:
            raise ListError(f"{self.id}: {self.file}: the old text occurs {count} times, expected once")
        return text.replace(self.old, self.new)

    def test_name(self):
        return f"{self.target} {self.test}" if self.test else self.ctest


def read_bugs(folder=os.path.join(HERE, "bugs")):
    """All bugs, file by file. ListError names the file and the bug."""
    bugs = []
    for path in sorted(glob.glob(os.path.join(folder, "*.toml"))):
        name = os.path.basename(path)
        with open(path, "rb") as file:
            try:
                tables = tomllib.load(file)
            except tomllib.TOMLDecodeError as error:
                raise ListError(f"{name}: {error}") from error
        for key, table in tables.items():
            if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
                raise ListError(f"{name}: {key}: expected a table of texts")
            unknown = set(table) - FIELDS
            missing = FIELDS - {"test", "ctest"} - set(table)
            if unknown or missing or ("test" in table) == ("ctest" in table):
                raise ListError(f"{name}: {key}: expected what, file, old, new, target, and test or ctest; "
                                f"missing {sorted(missing)}, unknown {sorted(unknown)}")
            bugs.append(Bug(id=key, folder=name.removesuffix(".toml"), test=table.get("test", ""),
                            ctest=table.get("ctest", ""), **{f: table[f] for f in ("what", "file", "old", "new", "target")}))
    return bugs


def read(root, path):
    with open(os.path.join(root, path), encoding="utf8") as file:
        return file.read()


def test_texts(root):
    """(text of all CMakeLists.txt, text of all C++ sources) below tests/."""
    lists, sources = [], []
    for directory, names, files in os.walk(os.path.join(root, "tests")):
        names[:] = [n for n in names if n != "__pycache__"]
        for file in sorted(files):
            if file == "CMakeLists.txt":
                lists.append(read(root, os.path.relpath(os.path.join(directory, file), root)))
            elif file.endswith((".cc", ".h")):
                sources.append(read(root, os.path.relpath(os.path.join(directory, file), root)))
    return lists, "\n".join(sources)


def makes_target(lists, target):
    """True when a CMakeLists.txt makes a test of that name, in full or as a_${x}_b with x one of its words."""
    for text in lists:
        for name in re.findall(r"coppice_(?:test|program)\(\s*([\w${}]+)", text):
            match = re.fullmatch(re.sub(r"\\\$\\\{\w+\\\}", r"(\\w+)", re.escape(name)), target)
            if match and all(re.search(rf"(?<!\w){word}(?!\w)", text) for word in match.groups()):
                return True
    return False


def makes_ctest(lists, name):
    """The same for a name that add_test gives."""
    for text in lists:
        for made in re.findall(r"add_test\(NAME ([\w${}]+)", text):
            match = re.fullmatch(re.sub(r"\\\$\\\{\w+\\\}", r"(\\w+)", re.escape(made)), name)
            if match and all(re.search(rf"(?<!\w){word}(?!\w)", text) for word in match.groups()):
                return True
    return False


def names_tests(sources, filter_text):
    """True when every pattern of the filter names a test of the sources: Suite.Test, with or without instantiation."""
    for pattern in filter_text.split(":"):
        suite, _, test = pattern.partition(".")
        suite, test = suite.split("/")[-1], test.split("/")[0]
        named = r"\w+" if test == "*" else re.escape(test)
        if not re.search(rf"\bTEST(?:_F|_P)?\(\s*{re.escape(suite)},\s*{named}\s*\)", sources):
            return False
    return True


def mistakes(root, bugs):
    """What is wrong with the list, one line each: nothing of it needs a build."""
    found = []
    seen = set()
    lists, sources = test_texts(root)
    for bug in bugs:
        where = f"bugs/{bug.folder}.toml: {bug.id}"
        if bug.id in seen:
            found.append(f"{where}: the id is given twice")
        seen.add(bug.id)
        if not NAME.fullmatch(bug.id):
            found.append(f"{where}: an id is made of small letters, digits and '-'")
        if bug.file.split("/")[0] != bug.folder:
            found.append(f"{where}: {bug.file} is not of folder {bug.folder}/")
        if bug.old == bug.new:
            found.append(f"{where}: old and new text are equal")
        if not bug.what.endswith(".") or "\n" in bug.what:
            found.append(f"{where}: what: expected a sentence on one line")
        try:
            bug.planted_in(read(root, bug.file))
        except (OSError, ListError) as error:
            found.append(f"{where}: {error}")
        if not makes_target(lists, bug.target):
            found.append(f"{where}: no CMakeLists.txt of tests/ makes {bug.target}")
        if bug.test and not names_tests(sources, bug.test):
            found.append(f"{where}: no source of tests/ has a test {bug.test}")
        if bug.ctest and not makes_ctest(lists, bug.ctest):
            found.append(f"{where}: no CMakeLists.txt of tests/ adds a test {bug.ctest}")
    if len(bugs) < LEAST_BUGS:
        found.append(f"bugs/: {len(bugs)} bugs, expected at least {LEAST_BUGS}")
    return found
