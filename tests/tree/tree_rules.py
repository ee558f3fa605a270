#!/usr/bin/env python3
"""Checks the rules of the source tree. A folder includes only the folders that it may. Subfolders include each other in one
direction. No two types share a name. Sources are listed. Every folder has a README. Names say something. Scripts parse.
Citations of docs/ exist. No test skips. No merge is left undecided. Large files are named in a page. Prints each violation as
file:line: reason. Exit status 1 if there is any.

  tree_rules.py ROOT
  tree_rules.py --print             prints what each folder may include
  tree_rules.py ROOT --measures     prints the graph of includes: folders, floors, arrows upwards, circles
"""
import ast
import os
import re
import subprocess
import sys

import tree_graph

# Folder -> what it may include besides itself: a folder (ends with /), or single files.
MESSAGES = re.compile(r"proto/\w+\.pb\.h")
ALL_BUT_TESTS = re.compile(r"(?!tests/).*")
MAY_INCLUDE = {
    "base": (),
    "model_files": ("base/",),
    "plan": ("base/",),
    "sampling": ("base/", "plan/"),
    "decoding": ("base/", "plan/", "sampling/"),
    "comm": ("base/", MESSAGES),
    "kernels": ("base/", "plan/", "sampling/", "comm/communicator.h"),
    "proto": ("base/", "plan/", "sampling/", "decoding/"),
    "model": ("base/", "model_files/", "plan/", "sampling/candidate_list.h", "sampling/rng.h", "kernels/", "comm/"),
    "node": ("base/", "plan/", "sampling/rng.h", "model/", "comm/", MESSAGES),
    "draft_node": ("base/", "plan/", "sampling/", "node/", "model/", "kernels/", "decoding/", "comm/", "proto/",
                   "tokenizer/vocabulary.h", "grammar/", "catalogue/catalogue_store.h"),
    "worker": ("base/", "plan/", "sampling/", "node/", "model/", "kernels/", "decoding/", "comm/", "proto/",
               "draft_node/draft_thread.h",
               "tokenizer/stop_strings.h", "tokenizer/tokenizer.h", "tokenizer/vocabulary.h",
               "tokenizer/chat_template/template_source.h", "grammar/", "catalogue/catalogue_store.h"),
    "tokenizer": ("base/", "model_files/model_files.h"),
    "catalogue": ("base/", "tokenizer/tokenizer.h", "tokenizer/vocabulary.h"),
    "grammar": ("base/", "catalogue/catalogue_store.h", "tokenizer/stop_automaton.h", "tokenizer/vocabulary.h", "tokenizer/utf8.h"),
    "coordinator": ("base/", "model_files/model_files.h", "plan/", "comm/", "proto/", "tokenizer/", "grammar/", "catalogue/", "sampling/rng.h", "sampling/row_params.h",
                    "decoding/params.h", "decoding/parameter.h", "decoding/parameter_rules.h", "decoding/method.h", "decoding/topology.h",
                    "decoding/decision_cost.h"),
    "loadgen": ("base/",),
    "lab": (ALL_BUT_TESTS,),
}
# These may include everything. The other rules apply to them.
FREE = ("tests",)
OTHER = ("deploy", "docs", "cmake", "training")
WORDLESS = re.compile(r"(^|_)(utils?|commons?|helpers?|misc)(_|$)")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
SOURCES = (".cc", ".h", ".cu", ".cuh")


def walk(root, folder):
    """Paths of the files below root/folder, relative to root, without build products."""
    for directory, names, files in os.walk(os.path.join(root, folder)):
        names[:] = sorted(n for n in names if n not in ("build", "__pycache__") and not n.startswith("."))
        for file in sorted(files):
            yield os.path.relpath(os.path.join(directory, file), root)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf8") as file:
        return file.read()


def allowed(folder, included):
    if included.split("/")[0] == folder:
        return True
    for rule in MAY_INCLUDE[folder]:
        if isinstance(rule, str):
            if included == rule or (rule.endswith("/") and included.startswith(rule)):
                return True
        elif rule.fullmatch(included):
            return True
    return False


def check_includes(root):
    """Each folder includes only what MAY_INCLUDE allows. Checks the project's own headers: those below a folder of the tables."""
    own = set(MAY_INCLUDE) | set(FREE)
    for folder in MAY_INCLUDE:
        for path in walk(root, folder):
            if not path.endswith(SOURCES):
                continue
            for number, line in enumerate(read(root, path).splitlines(), 1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                included = match.group(1)
                if "/" not in included or included.startswith("."):
                    yield f"{path}:{number}: include {included} is not written from the root of the tree"
                elif included.split("/")[0] in own and not allowed(folder, included):
                    yield f"{path}:{number}: {folder}/ may not include {included}"


CUDA_HEADER = re.compile(r"^\s*#\s*include\s+<(?:cuda|cublas|nccl|device_launch)[\w/]*\.h>")
CUDA_FOLDERS = ("kernels/cuda/", "tests/kernels/cuda/", "lab/bench/cuda/")


def check_cuda_headers(root):
    """Only the CUDA backend, its tests and benchmarks include headers of the CUDA toolkit. All other code compiles without it."""
    for path in (p for folder in (*MAY_INCLUDE, *FREE) for p in walk(root, folder)):
        if not path.endswith(SOURCES) or path.startswith(CUDA_FOLDERS):
            continue
        for number, line in enumerate(read(root, path).splitlines(), 1):
            if CUDA_HEADER.match(line):
                yield f"{path}:{number}: a header of the CUDA toolkit outside of {CUDA_FOLDERS[0]}"


ASSEMBLY = re.compile(r"\basm\b\s*(?:volatile\b\s*)?[({](?!\"\")|__asm")  # an empty one is for the compiler alone
DEVICE_FOLDERS = ("kernels/cuda/device/", "kernels/cuda/simulator/")


def check_kernels(root):
    """Assembly is in the device's own folder alone, and a kernel includes no header of the CUDA toolkit: so each is C++ for the
    simulator too."""
    for path in walk(root, "kernels"):
        if not path.endswith(SOURCES) or path.startswith(DEVICE_FOLDERS):
            continue
        for number, line in enumerate(read(root, path).splitlines(), 1):
            if ASSEMBLY.search(line):
                yield f"{path}:{number}: assembly outside of {DEVICE_FOLDERS[0]}"
            if path.endswith((".cu", ".cuh")) and CUDA_HEADER.match(line):
                yield f"{path}:{number}: a kernel includes a header of the CUDA toolkit itself, not {DEVICE_FOLDERS[0]}device.h"


def check_subfolders(root):
    """The subfolders of a folder include each other in one direction. A header directly in the folder is a place of its own, since
    subfolders may include it and it may include subfolders. A source directly in the folder may include anything, since nothing
    includes it."""
    def place(path):
        parts = path.split("/")
        return "/".join(parts[:2]) + "/" if len(parts) > 2 else path

    for folder in MAY_INCLUDE:
        uses = {}  # place -> place -> where
        for path in walk(root, folder):
            if not path.endswith(SOURCES) or (path.count("/") == 1 and not path.endswith((".h", ".cuh"))):
                continue
            for number, line in enumerate(read(root, path).splitlines(), 1):
                match = INCLUDE.match(line)
                if match and match.group(1).startswith(folder + "/") and place(match.group(1)) != place(path):
                    uses.setdefault(place(path), {}).setdefault(place(match.group(1)), f"{path}:{number}")
        yield from cycles(uses)


def cycles(uses):
    """One violation for each edge of the graph that closes a cycle."""
    done = set()

    def visit(node, way):
        for used, where in uses.get(node, {}).items():
            if used in way:
                yield f"{where}: includes in a circle: {' -> '.join(way[way.index(used):] + [used])}"
            elif used not in done:
                yield from visit(used, way + [used])
        done.add(node)

    for node in uses:
        if node not in done:
            yield from visit(node, [node])


# BLANK matches comments, strings and directives, which are blanked out. Then SCOPE finds the names of types.
BLANK = re.compile(r'''//[^\n]*|/\*.*?\*/|R"(?P<d>[^()\s]*)\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'(?!\w)'''
                   r'''|^[ \t]*\#(?:\\\n|[^\n])*''', re.S | re.M)
SCOPE = re.compile(r"\bnamespace\s*(?P<space>[\w:]*)\s*\{"
                   r"|\b(?:class|struct|union|enum(?:\s+(?:class|struct))?)\s+(?:\[\[[^\]]*\]\]\s*)?(?P<type>[\w:]+)(?:\s+final)?\s*"
                   r"(?::(?!:)[^{};]*)?\{|\{|\}")
MESSAGE = re.compile(r"^(?:message|enum) (\w+)", re.M)


def types_of(text):
    """(qualified name, line) of every type that the text defines, except in anonymous namespaces and inside functions."""
    text = BLANK.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)
    scopes = []  # names; None: a block, or an anonymous namespace
    for match in SCOPE.finditer(text):
        if match.group(0) == "}":
            if scopes:
                scopes.pop()
        elif match.group("space") is not None:
            scopes.append(match.group("space") or None)
        else:
            name = match.group("type")
            if name and None not in scopes:
                yield "::".join(scopes + [name]), text.count("\n", 0, match.start()) + 1
            scopes.append(name)


def check_types(root):
    """No two types share a qualified name. In one program, the linker would merge their functions."""
    first = {}
    for path in (p for folder in MAY_INCLUDE for p in walk(root, folder)):
        if path.endswith(SOURCES):
            found = types_of(read(root, path))
        elif path.endswith(".proto"):
            text = read(root, path)
            package = re.search(r"^package ([\w.]+);", text, re.M)
            space = package.group(1).replace(".", "::") + "::" if package else ""
            found = ((space + m.group(1), text.count("\n", 0, m.start()) + 1) for m in MESSAGE.finditer(text))
        else:
            continue
        for name, line in found:
            if name in first:
                yield f"{path}:{line}: {name} is the name of another type, of {first[name]}"
            first.setdefault(name, f"{path}:{line}")


def check_readmes(root):
    for folder in (*MAY_INCLUDE, *FREE, *OTHER):
        directory = os.path.join(root, folder)
        if os.path.isdir(directory) and not os.path.isfile(os.path.join(directory, "README.md")):
            yield f"{folder}/: no README.md"


def names_source(lists, name):
    """True if the text of a CMakeLists.txt names the source, in full or as ${x}_test.cc with x from a list of words."""
    def word(text):
        return re.search(r"(?<![\w/.])" + re.escape(text) + r"(?![\w/.])", lists)

    return word(name) or any(name.endswith(suffix) and word(name[:-len(suffix)])
                             for suffix in re.findall(r"\$\{\w+\}(\w*\.cc)", lists))


def check_listed(root):
    """Every source is named in a CMakeLists.txt of its folder or of one above it."""
    for folder in (*MAY_INCLUDE, *FREE):
        for path in walk(root, folder):
            if not path.endswith((".cc", ".cu")):
                continue
            directory, listed = os.path.dirname(path), False
            while directory and not listed:
                lists = os.path.join(directory, "CMakeLists.txt")
                if os.path.isfile(os.path.join(root, lists)):
                    listed = names_source(read(root, lists), os.path.relpath(path, directory))
                directory = os.path.dirname(directory)
            if not listed:
                yield f"{path}: not listed in a CMakeLists.txt of its folder"


def check_names(root):
    for folder in (*MAY_INCLUDE, *FREE, *OTHER):
        for path in walk(root, folder):
            for part in path.split(os.sep):
                if WORDLESS.search(part.split(".")[0]):
                    yield f"{path}: the name '{part}' says nothing"


def check_scripts(root):
    """Shell scripts parse (bash -n), Python files parse."""
    for path in (p for folder in (*MAY_INCLUDE, *FREE, *OTHER, ".ci") for p in walk(root, folder)):
        full = os.path.join(root, path)
        if path.endswith(".py"):
            try:
                ast.parse(read(root, path))
            except SyntaxError as error:
                yield f"{path}:{error.lineno}: {error.msg}"
            continue
        with open(full, "rb") as file:
            first = file.readline(80)
        if path.endswith(".sh") or (first.startswith(b"#!") and b"bash" in first):
            result = subprocess.run(["bash", "-n", full], capture_output=True, text=True)
            if result.returncode != 0:
                yield f"{path}: {result.stderr.strip()}"


# ---- citations of docs/ ----
TEXTS = (*SOURCES, ".proto", ".py", ".sh", ".md", ".txt", ".cmake")
NUMBER = r"\d+(?:\.\d+)*"
SECTIONS = rf"(?P<sections>\s+{NUMBER}(?:(?:,\s+|\s+and\s+|\s+to\s+|-){NUMBER})*)?"
CITATION = re.compile(r"(?<!\]\()\bdocs/(?P<page>[\w/]+\.md)" + SECTIONS)
LINK = re.compile(r"\]\((?P<page>[\w./-]+)\)" + SECTIONS)
OUTSIDE = re.compile(r"\b(?!(?:README|CONTRIBUTING|CHANGELOG|SECURITY)\b)[A-Z]{3,}\.md\b")
HEADING = re.compile(rf"^#+ ({NUMBER})\.? ", re.M)


def joined_comments(text):
    """The text with line breaks, and comment marks after them, replaced by spaces. So a citation may span lines."""
    return re.sub(r"\n[ \t]*(?://|#)?", lambda match: " " * len(match.group()), text)


def check_citations(root):
    """Each cited page of docs/ (docs/page.md 4.2, or a link in Markdown) exists and has the section."""
    folders = [name for name in (*MAY_INCLUDE, *FREE, *OTHER, ".ci") if os.path.isdir(os.path.join(root, name))]
    paths = [path for folder in folders for path in walk(root, folder)]
    paths += [name for name in sorted(os.listdir(root)) if os.path.isfile(os.path.join(root, name))]
    for path in paths:
        if not path.endswith(TEXTS) and os.path.dirname(path) != ".ci" or path.startswith("tests/tree/"):
            continue
        text = read(root, path)
        flat = joined_comments(text)
        cited = [(match, os.path.join("docs", match["page"])) for match in CITATION.finditer(flat)]
        if path.endswith(".md"):
            cited += [(match, os.path.normpath(os.path.join(os.path.dirname(path), match["page"])))
                      for match in LINK.finditer(flat)]
        for match, page in cited:
            place = f"{path}:{text.count(chr(10), 0, match.start()) + 1}"
            if not os.path.isfile(os.path.join(root, page)):
                yield f"{place}: there is no {page}"
                continue
            there = set(HEADING.findall(read(root, page)))
            for section in re.findall(NUMBER, match["sections"] or ""):
                if section not in there:
                    yield f"{place}: {page} has no section {section}"
        for match in OUTSIDE.finditer(text):
            yield f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()} is not a file of this tree"


SKIP = re.compile(r"\bGTEST_SKIP\b|\bSKIP_(?:RETURN_CODE|REGULAR_EXPRESSION)\b|\bDISABLED\b|\bDISABLED_|\bskip(?:Test|If|Unless)\b|\bSkipTest\b")


def check_skips(root):
    """No test skips. Everything that a test needs is in the tree or is installed by deploy/setup.sh."""
    for path in (p for folder in ("tests", "lab", "training") for p in walk(root, folder)):
        if not path.endswith(TEXTS) or path.startswith("tests/tree/tree_rules"):
            continue
        for number, line in enumerate(read(root, path).splitlines(), 1):
            if SKIP.search(line):
                yield f"{path}:{number}: a test that may be skipped"


MARKER = re.compile(r"(?:<{7}|>{7}) ")


def check_merges(root):
    """No file has both sides of a merge."""
    top = (name for name in sorted(os.listdir(root)) if os.path.isfile(os.path.join(root, name)))
    for path in [*top, *(p for folder in (*MAY_INCLUDE, *FREE, *OTHER) for p in walk(root, folder))]:
        if not path.endswith(TEXTS):
            continue
        for number, line in enumerate(read(root, path).splitlines(), 1):
            if MARKER.match(line):
                yield f"{path}:{number}: a merge that was not decided"


LARGE = 100_000  # bytes


def check_large_files(root):
    """A file of more than 100 KB is named in a page: by its path in any, or by the rest of its path in the README of a folder above."""
    top = [name for name in sorted(os.listdir(root)) if os.path.isfile(os.path.join(root, name))]
    paths = [*top, *(path for folder in (*MAY_INCLUDE, *FREE, *OTHER) for path in walk(root, folder))]
    pages = {path: read(root, path) for path in paths if path.endswith(".md")}

    def named(path):
        folders = [os.path.dirname(page) for page in pages if page.endswith("README.md")]
        names = [(page, path) for page in pages]
        names += [(os.path.join(folder, "README.md"), os.path.relpath(path, folder or "."))
                  for folder in folders if path.startswith(folder + "/")]
        return any(re.search(r"(?<![\w/.-])" + re.escape(name) + r"(?![\w/-]|\.\w)", pages[page]) for page, name in names)

    for path in paths:
        size = os.path.getsize(os.path.join(root, path))
        if size > LARGE and not named(path):
            yield f"{path}: {size} bytes, and no page says what it is"


CHECKS = (check_includes, check_cuda_headers, check_kernels, check_subfolders, check_types, check_readmes, check_listed, check_names,
          check_scripts, check_citations, check_skips, check_merges, check_large_files)


def violations(root):
    return [violation for check in CHECKS for violation in check(root)]


def main():
    arguments = [argument for argument in sys.argv[1:] if argument not in ("--print", "--measures")]
    options = sys.argv[1:]
    if "--print" in options:
        return print("\n".join(tree_graph.print_rules(MAY_INCLUDE, FREE)))
    if len(arguments) != 1:
        sys.exit(__doc__)
    if "--measures" in options:
        return print("\n".join(tree_graph.measures(arguments[0], MAY_INCLUDE, FREE, allowed)))
    found = violations(sys.argv[1])
    print("\n".join(found) if found else "tree rules: no violation")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
