#!/usr/bin/env python3
"""The map of the tree: two levels of folders, one line each. A folder's line is the first line of its README, `# name: what it is`.
A subfolder without a README has a line in that of its folder: "- `name/`: what it is." up to the first full stop, colon or semicolon.
Subfolders of tests/ that are named like a folder of the tree mirror it and have no line.

  tree_map.py ROOT            prints the map
  tree_map.py ROOT --check    exit status 1 if the map in docs/architecture.md differs
  tree_map.py ROOT --write    writes it there, between its two marks
"""
import os
import re
import sys

PAGE = "docs/architecture.md"
BEGIN, END = "<!-- map of the tree: tests/tree/tree_map.py writes it -->\n", "<!-- end of the map -->\n"
WIDTH = 110
TITLE = re.compile(r"#\s+`?(?P<name>[\w/.-]+?)/?`?:\s+(?P<text>.+)")
SENTENCE = re.compile(r"(?P<text>.+?)(?:[.;:](?:\s|$)|$)", re.S)


def folders_in(root, folder):
    """The folders in root/folder that hold a file, sorted, without build products and hidden ones."""
    def holds_a_file(path):
        return any(files for directory, names, files in os.walk(path) if "__pycache__" not in directory)

    path = os.path.join(root, folder)
    return sorted(name for name in os.listdir(path)
                  if os.path.isdir(os.path.join(path, name)) and not name.startswith(".") and name not in ("build", "__pycache__")
                  and holds_a_file(os.path.join(path, name)))


def readme(root, folder):
    path = os.path.join(root, folder, "README.md")
    if not os.path.isfile(path):
        return ""
    with open(path, encoding="utf8") as file:
        return file.read()


def title(root, folder):
    """What the first line of the folder's README says it is, or None."""
    match = TITLE.match(readme(root, folder).split("\n", 1)[0])
    return match["text"].strip() if match and match["name"].split("/")[-1] == folder.split("/")[-1] else None


def line_in_parent(root, folder, name):
    """What the README of the folder says of its subfolder, up to the first full stop, or None."""
    match = re.search(rf"^- `{re.escape(name)}/`: (?P<rest>(?:.+\n?)(?:  .+\n?)*)", readme(root, folder), re.M)
    return " ".join(SENTENCE.match(match["rest"])["text"].split()) if match else None


def tree_map(root):
    """(lines, problems): the map, and the folders that nothing describes in one line."""
    lines, problems = [], []

    def add(indent, name, text, missing):
        line = f"{indent + name + '/':<21} {text}"
        if not text:
            problems.append(missing)
        elif len(line) > WIDTH:
            problems.append(f"{missing.split(':')[0]}: its line has {len(line)} characters, at most {WIDTH}: {line}")
        lines.append(line)

    top = folders_in(root, "")
    for folder in top:
        add("", folder, title(root, folder), f"{folder}/README.md: the first line is not '# {folder}: what it is'")
        for name in folders_in(root, folder):
            if folder == "tests" and name in top:
                continue
            text = title(root, f"{folder}/{name}") or line_in_parent(root, folder, name)
            add("  ", name, text, f"{folder}/{name}/: no '# {name}: what it is' in its README, no line in {folder}/README.md")
    return lines, problems


def block(lines):
    return BEGIN + "```\n" + "\n".join(lines) + "\n```\n" + END


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--check"], ["--write"]):
        sys.exit(__doc__)
    root, mode = sys.argv[1], (sys.argv[2:] or ["--print"])[0]
    lines, problems = tree_map(root)
    if problems:
        sys.exit("\n".join(problems))
    if mode == "--print":
        print("\n".join(lines))
        return
    path = os.path.join(root, PAGE)
    with open(path, encoding="utf8") as file:
        page = file.read()
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        sys.exit(f"{PAGE}: no two marks of the map, {BEGIN.strip()} and {END.strip()}")
    new = page[:page.index(BEGIN)] + block(lines) + page[page.index(END) + len(END):]
    if mode == "--write" and new != page:
        with open(path, "w", encoding="utf8") as file:
            file.write(new)
    elif mode == "--check" and new != page:
        sys.exit(f"{PAGE}: the map of the tree is stale: tests/tree/tree_map.py . --write")
    print(f"map of the tree: {len(lines)} folders")


if __name__ == "__main__":
    main()
