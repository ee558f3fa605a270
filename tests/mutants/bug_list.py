"""Reads the list of planted bugs, bugs/*.toml, and finds mistakes in it."""
import dataclasses
import fnmatch
import glob
import os
import re
import tomllib

import pattern

HERE = os.path.dirname(os.path.abspath(__file__))
LEAST_BUGS = 700
BUILDS = ("release", "cuda-sim", "tsan")  # presets of CMake
NEEDED = {"what", "file", "old", "new"}
FIELDS = NEEDED | {"in", "build", "environment", "target", "test", "ctest", "needs", "kind"}
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
SETTING = re.compile(r"\w+=\S*")


class ListError(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Bug:
    id: str
    list: str          # the name of the list's file
    what: str          # the bug in one sentence
    file: str          # its name, with as many of its folders as make it unique
    old: str           # occurs once in the scope
    new: str
    scope: str         # the function or other declaration that holds it; "" = the whole file
    build: str         # the preset that is built
    environment: dict  # of the test
    target: str        # what is built; "" = nothing
    test: str          # a GoogleTest filter; "" when ctest is given
    ctest: str         # the name of a ctest entry
    needs: str         # a flag of /proc/cpuinfo without which the test cannot catch it; "" = none
    kind: str          # the bug stands for its kind; "" = for none

    def planted_in(self, text):
        """The text of the file with the bug. ListError unless the old text occurs exactly once in the scope."""
        try:
            return pattern.planted(text, self.file, self.old, self.new, self.scope)
        except pattern.PatternError as error:
            raise ListError(f"{self.id}: {self.file}: {error}") from error

    def test_name(self):
        """Names what is run, without the build."""
        settings = "".join(f"{name}={value} " for name, value in self.environment.items())
        return settings + (f"{self.target} {self.test}" if self.test else self.ctest)


def bug_of(name, key, table):
    """The bug of one table of the list `name`."""
    if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
        raise ListError(f"{name}: {key}: expected a table of texts")
    unknown, missing = set(table) - FIELDS, NEEDED - set(table)
    if unknown or missing or ("test" in table) == ("ctest" in table):
        raise ListError(f"{name}: {key}: expected what, file, old, new, and test or ctest; "
                        f"missing {sorted(missing)}, unknown {sorted(unknown)}")
    if "test" in table and "target" not in table:
        raise ListError(f"{name}: {key}: a test needs its target")
    settings = table.get("environment", "").split()
    if not all(SETTING.fullmatch(setting) for setting in settings):
        raise ListError(f"{name}: {key}: environment: expected NAME=VALUE, with spaces between them")
    return Bug(id=key, list=name.removesuffix(".toml"), scope=table.get("in", ""), build=table.get("build", "release"),
               environment=dict(setting.split("=", 1) for setting in settings),
               **{field: table.get(field, "") for field in ("what", "file", "old", "new", "target", "test", "ctest", "needs", "kind")})


def read_bugs(folder=os.path.join(HERE, "bugs")):
    """All bugs, list by list. ListError names the list and the bug."""
    bugs = []
    for path in sorted(glob.glob(os.path.join(folder, "*.toml"))):
        name = os.path.basename(path)
        with open(path, "rb") as file:
            try:
                tables = tomllib.load(file)
            except tomllib.TOMLDecodeError as error:
                raise ListError(f"{name}: {error}") from error
        bugs += [bug_of(name, key, table) for key, table in tables.items()]
    return bugs


class Files:
    """The files in which bugs are planted: all but those of tests/ and of build folders."""

    def __init__(self, root):
        self.paths = []
        for directory, names, files in os.walk(root):
            names[:] = [n for n in names if not n.startswith(".") and n not in ("build", "__pycache__")
                        and not (n == "tests" and os.path.samefile(directory, root))]
            self.paths += [os.path.relpath(os.path.join(directory, file), root) for file in files]

    def path_of(self, name):
        """The path of the file that has this name and, as far as they are given, these folders. If there is none in these folders,
        the one file of that name. ListError if there is none, or more than one."""
        found = [path for path in self.paths if f"/{path}".endswith(f"/{name}")]
        if not found:
            found = [path for path in self.paths if os.path.basename(path) == os.path.basename(name)]
        if len(found) != 1:
            raise ListError(f"{name}: {'no such file' if not found else 'may be ' + ' or '.join(sorted(found))}")
        return found[0]


def read(root, path):
    with open(os.path.join(root, path), encoding="utf8") as file:
        return file.read()


class Tests:
    """The names of all targets, ctest entries and test cases below tests/."""

    def __init__(self, root):
        self.targets, self.ctests = [], []
        self.cases = {}    # "Suite.Test" -> files with it
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
                    for suite, case in re.findall(r"^TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)", text, re.M):
                        self.cases.setdefault(f"{suite}.{case}", set()).add(os.path.normpath(path))

    @staticmethod
    def among(made, name):
        """True if the name is in `made`, in full or as a_${x}_b, where x is a word of the same CMakeLists.txt."""
        for form, words in made:
            match = re.fullmatch(re.sub(r"\\\$\\\{\w+\\\}", r"(\\w+)", re.escape(form)), name)
            if match and words.issuperset(match.groups()):
                return True
        return False

    def unknown(self, target, filter_text):
        """The patterns of a GoogleTest filter that name no test of the target. Those behind "-" are not looked at: they leave tests
        out. Of a test with parameters, Prefix/Suite.Test/Parameter, only the suite and the test are compared."""
        sources = self.sources.get(target)
        known = [name for name, files in self.cases.items()
                 if sources is None or files & sources or any(file.endswith(".h") for file in files)]
        found = []
        for wanted in filter_text.split("-")[0].split(":"):
            name = re.sub(r"^[^./]*/|/[^./]*$", "", wanted)
            if wanted and not fnmatch.filter(known, name):
                found.append(wanted)
        return found


def mistakes(root, bugs, least=LEAST_BUGS):
    """Returns one line for each mistake in the list. Finds only mistakes that can be seen without a build."""
    found = []
    seen, kinds = set(), set()
    tests, files = Tests(root), Files(root)
    for bug in bugs:
        where = f"bugs/{bug.list}.toml: {bug.id}"
        if bug.id in seen:
            found.append(f"{where}: the id is given twice")
        seen.add(bug.id)
        if not NAME.fullmatch(bug.id):
            found.append(f"{where}: an id is made of small letters, digits and '-'")
        if bug.old == bug.new:
            found.append(f"{where}: old and new text are equal")
        if not bug.what.endswith(".") or "\n" in bug.what:
            found.append(f"{where}: what: expected a sentence on one line")
        try:
            bug.planted_in(read(root, files.path_of(bug.file)))
        except ListError as error:
            found.append(f"bugs/{bug.list}.toml: {error}" if str(error).startswith(bug.id) else f"{where}: {error}")
        if bug.build not in BUILDS:
            found.append(f"{where}: build is one of {', '.join(BUILDS)}")
        if bug.kind and bug.kind in kinds:
            found.append(f"{where}: another bug stands for the kind \"{bug.kind}\"")
        kinds.add(bug.kind)
        if bug.target and not tests.among(tests.targets, bug.target):
            found.append(f"{where}: no CMakeLists.txt of tests/ makes {bug.target}")
        for wanted in tests.unknown(bug.target, bug.test) if bug.test else ():
            found.append(f"{where}: {bug.target} has no test {wanted}")
        if bug.ctest and not tests.among(tests.ctests, bug.ctest):
            found.append(f"{where}: no CMakeLists.txt of tests/ adds a test {bug.ctest}")
    if len(bugs) < least:
        found.append(f"bugs/: {len(bugs)} bugs, expected at least {least}")
    return found
