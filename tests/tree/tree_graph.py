"""What the folders of the tree include: the rules in words, and the measures of the graph. Called by tree_rules.py (--print,
--measures), which has the table of the rules."""
import os
import re

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
SOURCES = (".cc", ".h", ".cu", ".cuh")


def rule_words(rule):
    """A rule of the table as text: a folder, a file, or what a pattern stands for."""
    if isinstance(rule, str):
        return rule
    return {r"proto/\w+\.pb\.h": "proto/*.pb.h", r"(?!tests/).*": "everything but tests/"}.get(rule.pattern, f"/{rule.pattern}/")


def print_rules(may_include, free):
    """The lines that say what each folder may include besides itself and libraries."""
    lines = [f"{folder + '/':<14} {', '.join(rule_words(rule) for rule in rules) or 'nothing of the tree'}"
             for folder, rules in may_include.items()]
    return lines + [f"{folder + '/':<14} everything" for folder in free]


def arrows(root, folders):
    """{(folder, included folder): the first place}. Headers that are not in the tree (generated, libraries) make no arrow."""
    found = {}
    for folder in folders:
        for directory, names, files in os.walk(os.path.join(root, folder)):
            names[:] = sorted(name for name in names if name not in ("build", "__pycache__") and not name.startswith("."))
            for file in sorted(files):
                if not file.endswith(SOURCES):
                    continue
                path = os.path.join(directory, file)
                with open(path, encoding="utf8") as text:
                    for match in INCLUDE.finditer(text.read()):
                        to = match[1].split("/")[0]
                        if to != folder and to in folders and os.path.isfile(os.path.join(root, match[1])):
                            found.setdefault((folder, to), f"{os.path.relpath(path, root)}: {match[1]}")
    return found


def circles(edges):
    """The sets of folders that include each other, directly or through others."""
    reach = {}
    for start in {folder for edge in edges for folder in edge}:
        seen, todo = set(), [start]
        while todo:
            for source, to in edges:
                if source == todo[-1] and to not in seen:
                    seen.add(to)
                    todo.insert(0, to)
            todo.pop()
        reach[start] = seen
    found = []
    for folder in sorted(reach):
        group = sorted(other for other in reach[folder] if folder in reach[other])
        if group and group not in found:
            found.append(group)
    return found


def floors(folders, edges):
    """{folder: floor}. A folder that includes none is on floor 1; others stand one above the highest that they include. Edges must
    have no circle."""
    below = {folder: [to for source, to in edges if source == folder] for folder in folders}
    floor = {}

    def visit(folder):
        if folder not in floor:
            floor[folder] = 1 + max((visit(to) for to in below[folder]), default=0)
        return floor[folder]

    for folder in folders:
        visit(folder)
    return floor


def measures(root, may_include, free, allowed):
    """The lines of --measures. allowed(folder, header) is the rule. An arrow upwards is an include that the rules forbid, or that is
    part of a circle: all others go down by the definition of the floors."""
    folders = [folder for folder in (*may_include, *free) if os.path.isdir(os.path.join(root, folder))]
    found = arrows(root, folders)
    rings = circles(found)
    inside = {(a, b) for ring in rings for a in ring for b in ring}
    forbidden = {edge for edge, place in found.items() if edge[0] in may_include and not allowed(edge[0], place.split(": ")[1])}
    upwards = sorted(edge for edge in found if edge in inside or edge in forbidden)
    floor = floors(folders, [edge for edge in found if edge not in upwards])
    lines = [f"folders with sources: {len(folders)}", f"floors: {max(floor.values(), default=0)}"]
    for level in range(max(floor.values(), default=0), 0, -1):
        lines.append(f"  {level}: {', '.join(folder for folder in folders if floor[folder] == level)}")
    lines.append(f"arrows: {len(found)}, upwards: {len(upwards)}")
    lines += [f"  {source} -> {to}: {found[source, to]}" for source, to in upwards]
    lines.append(f"circles: {len(rings)}")
    lines += [f"  {', '.join(ring)}" for ring in rings]
    return lines
