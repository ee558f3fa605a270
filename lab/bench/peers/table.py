"""The table of one or several runs, from their records: tokens per second of each engine beside Coppice, and whether texts agree."""
import collections
import json
import statistics

from workload import Work

FORMAT_VERSION = 1
DIFFERENCES_SHOWN = 8


class RecordError(Exception):
    """Names the file, the line and what is wrong."""


def read_records(paths):
    rows = []
    for path in paths:
        try:
            with open(path, encoding="utf8") as lines:
                for number, line in enumerate(lines, 1):
                    try:
                        rows.append(json.loads(line))
                        if rows[-1]["kind"] == "run" and rows[-1]["format_version"] != FORMAT_VERSION:
                            raise ValueError
                    except (ValueError, KeyError, TypeError) as error:
                        raise RecordError(f"{path}:{number}: is no record of this program") from error
        except OSError as error:
            raise RecordError(f"{path}: {error.strerror}") from error
    return rows


def rate(row):
    """Tokens of the returned texts per second. Reading the prompts is part of the time."""
    return sum(map(len, row["ids"])) / row["seconds"]


def same_start(one, other):
    """How many ids two texts have in common at their start."""
    return next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))


class Cell:
    """An engine at one work with one type of weights: {turn: record}."""

    def __init__(self):
        self.turns = {}

    def rates(self):
        return [rate(row) for row in self.turns.values()]

    def speed(self):
        rates = self.rates()
        return f"{statistics.median(rates):.0f} [{min(rates):.0f}, {max(rates):.0f}]"

    def against(self, base):
        """The median over turns of this engine's rate divided by the other's in the same turn; None without a common turn."""
        common = [rate(self.turns[turn]) / rate(base.turns[turn]) for turn in self.turns if turn in base.turns]
        return statistics.median(common) if common else None

    def agreement(self, base):
        """(equal texts, texts, [(turn, prompt, first id that differs)])"""
        equal, count, differing = 0, 0, []
        for turn in sorted(set(self.turns) & set(base.turns)):
            for prompt, (one, other) in enumerate(zip(self.turns[turn]["ids"], base.turns[turn]["ids"])):
                count += 1
                equal += one == other
                if one != other:
                    differing.append((turn, prompt, same_start(one, other)))
        return equal, count, differing


def cells(rows):
    """{type: {work: {engine: Cell}}}, in the order of the records' first appearance. Several files may have the same turn numbers."""
    found = collections.defaultdict(lambda: collections.defaultdict(lambda: collections.defaultdict(Cell)))
    run = 0
    for row in rows:
        run += row["kind"] == "run"
        if row["kind"] == "answer":
            found[row["type"]][row["work"]][row["engine"]].turns[run, row["turn"]] = row
    return found


def engines_of(rows):
    """All engines that answered, Coppice first, the others in the order in which they were loaded."""
    answered = {row["engine"] for row in rows if row["kind"] == "answer"}
    loaded = dict.fromkeys(row["engine"] for row in rows if row["kind"] == "engine")
    return sorted((name for name in loaded if name in answered), key=lambda name: name != "coppice")


def lines(rows, markdown=False):
    names, found = engines_of(rows), cells(rows)
    table = [["weights", "requests", "coppice, tokens/s"] if "coppice" in names else ["weights", "requests"]]
    peers = [name for name in names if name != "coppice"]
    for name in peers:
        table[0] += [f"{name}, tokens/s", "of coppice", "same texts"]
    for kind, works in found.items():
        for work, by_engine in works.items():
            base = by_engine.get("coppice", Cell())
            cell_row = [kind, Work(*map(int, work.split("x"))).label] + [base.speed() if base.turns else "-"] * ("coppice" in names)
            for name in peers:
                cell = by_engine.get(name)
                share = cell.against(base) if cell else None
                if share is None:
                    cell_row += [cell.speed() if cell else "-", "-", "-"]
                else:
                    equal, count, _ = cell.agreement(base)
                    cell_row += [cell.speed(), f"{share:.2f}", f"{equal} of {count}"]
            table.append(cell_row)
    return markdown_lines(table) if markdown else aligned(table)


def markdown_lines(table):
    return ["| " + " | ".join(row) + " |" for row in [table[0], ["---"] * len(table[0]), *table[1:]]]


def aligned(table):
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    return ["  ".join(cell.ljust(width) if i < 2 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))) for row in table]


def notes(rows):
    """What a reader must know beside the table: where f32 texts differ, what is absent and why, versions, the machine's load."""
    said = []
    for work, by_engine in cells(rows).get("f32", {}).items():
        for name, cell in by_engine.items():
            differing = cell.agreement(by_engine["coppice"])[2] if name != "coppice" and "coppice" in by_engine else []
            for (_, turn), prompt, place in differing[:DIFFERENCES_SHOWN]:
                said.append(f"f32, {work}: {name} and coppice differ in turn {turn}, prompt {prompt + 1}, from token {place + 1} on")
            if len(differing) > DIFFERENCES_SHOWN:
                said.append(f"f32, {work}: {name}: and {len(differing) - DIFFERENCES_SHOWN} more")
    said += list(dict.fromkeys(f"absent: {row['type'] + ', ' if row.get('type') else ''}{row['reason']}" for row in rows if row["kind"] == "absent"))
    said += list(dict.fromkeys(f"version: {row['engine']} {row['version']}" for row in rows if row["kind"] == "engine"))
    for row in rows:
        if row["kind"] == "run":
            said.append(f"run of {row['date']}: {row['threads']} threads on {row['usable_cores']} of {row['cores']} cores, {row['policy']}, {row['cpu']}: {row['command']}")
        if row["kind"] == "load":
            said.append(f"load of the machine {row['when']} {row['type']}: {' '.join(f'{value:.1f}' for value in row['load'])} (1, 5, 15 minutes)")
    return said
