"""Reads the list of planted bugs, bugs/*.toml, and finds mistakes in it. There is one file for each folder of the tree."""
import dataclasses
import glob
import os
import re
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
LEAST_BUGS = 60
FIELDS = {"what", "file", "old", "new", "target", "test", "ctest", "needs"}
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
    needs: str   # a flag of /proc/cpuinfo without which the test cannot catch it; "" = none

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
            missing = FIELDS - {"test", "ctest", "needs"} - set(table)
            if unknown or missing or ("test" in table) == ("ctest" in table):
                raise ListError(f"{name}: {key}: expected what, file, old, new, target, and test or ctest; "
                                f"missing {sorted(missing)}, unknown {sorted(unknown)}")
            bugs.append(Bug(id=key, folder=name.removesuffix(".toml"), test=table.get("test", ""),
                            ctest=table.get("ctest", ""), needs=table.get("needs", ""),
                            **{f: table[f] for f in ("what", "file", "old", "new", "target")}))
    return bugs


def read(root, path):
    with open(os.path.join(root, path), encoding="utf8") as file:
        return file.read()


class Tests:
    """The names of all targets, ctest entries and test cases below tests/."""

    def __init__(self, root):
        self.targets, self.ctests = [], []
        self.cases = {}    # (suite, test) -> files with it
        self.sources = {}  # target -> its files, for targets that name them without variables
        for directory, names, files in os.walk(os.path.join(root, "tests")):
            names[:] = [n for n in names if n != "__pycache__"]
            for file in files:
                if file == "CMakeLists.txt":
                    text = read(root, os.path.join(directory, file))
                    words = set(re.findall(r"\w+", text))
                    self.targets += [(made, words) for made in re.findall(r"coppice_(?:test|program)\(\s*([\w${}]+)", text)]
                    for made, listed in re.findall(r"coppice_test\(\s*(\w+)\s+SOURCES ([^$)]*?)\s+DEPS", text):
                        self.sources[made] = {os.path.normpath(os.path.join(directory, source)) for source in listed.split()}
                    self.ctests += [(made, words) for made in re.findall(r"add_test\(NAME ([\w${}]+)", text)]
                elif file.endswith((".cc", ".h")):
                    path = os.path.join(directory, file)
                    text = read(root, path)
                    for kind, suite, case in re.findall(r"^TEST(_F|_P)?\(\s*(\w+),\s*(\w+)", text, re.M):
                        suite = "*/" + suite if kind == "_P" else suite
                        for name in ((suite, case), (suite, "*")):
                            self.cases.setdefault(name, set()).add(os.path.normpath(path))

    @staticmethod
    def among(made, name):
        """True if the name is in `made`, in full or as a_${x}_b, where x is a word of the same CMakeLists.txt."""
        for pattern, words in made:
            match = re.fullmatch(re.sub(r"\\\$\\\{\w+\\\}", r"(\\w+)", re.escape(pattern)), name)
            if match and words.issuperset(match.groups()):
                return True
        return False

    def unknown(self, target, filter_text):
        """The patterns of a GoogleTest filter that name no test of the target. A pattern is Suite.Test, Suite.*, or with parameters
        */Suite.Test/*."""
        found = []
        for pattern in filter_text.split(":"):
            files = self.cases.get(tuple(re.sub(r"(?<=\w)/[\w*]+$", "", pattern).split(".")), set())
            headers = {file for file in files if file.endswith(".h")}  # in every target that includes them
            if not files or not (headers or files & self.sources.get(target, files)):
                found.append(pattern)
        return found


def mistakes(root, bugs, least=LEAST_BUGS):
    """Returns one line for each mistake in the list. Finds only mistakes that can be seen without a build."""
    found = []
    seen = set()
    tests = Tests(root)
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
        if not tests.among(tests.targets, bug.target):
            found.append(f"{where}: no CMakeLists.txt of tests/ makes {bug.target}")
        for pattern in tests.unknown(bug.target, bug.test) if bug.test else ():
            found.append(f"{where}: {bug.target} has no test {pattern}")
        if bug.ctest and not tests.among(tests.ctests, bug.ctest):
            found.append(f"{where}: no CMakeLists.txt of tests/ adds a test {bug.ctest}")
    if len(bugs) < least:
        found.append(f"bugs/: {len(bugs)} bugs, expected at least {least}")
    return found
