"""The table of a run, from its records."""
import collections

from . import figures, settings

# How the quality of a task is shown: its name, decimals, a factor, its unit in tables and on axes.
Quality = collections.namedtuple("Quality", "name digits scale unit axis")
QUALITIES = {"wikisql": Quality("exact match", 1, 100, " %", ", %"), "translation": Quality("BLEU", 1, 1, "", ""),
             "prompts": Quality("log-likelihood per token", 3, 1, "", ", nats")}


def labels(rows):
    """{variant: (label, named, kind)} in the order in which they were asked for."""
    found = {}
    for row in rows:
        if row["kind"] == "run":
            found.update(row["labels"])
    return found


def only(rows, names):
    """The records without the answers of other settings than the named ones; all if none is named."""
    there = {name.split("+")[0] for name in labels(rows)}
    for name in names:
        if name not in there:
            raise settings.SettingsError(f"no setting of the run is called {name}; there are {', '.join(sorted(there))}")
    return [row for row in rows if row["kind"] != "answer" or not names or row["variant"].split("+")[0] in names]


def answers(rows, category=None):
    """{variant: records} in the order of the settings."""
    of = {name: [] for name in labels(rows)}
    for row in rows:
        if row["kind"] == "answer" and (category is None or row["category"] == category):
            of.setdefault(row["variant"], []).append(row)
    return {name: found for name, found in of.items() if found}


def summaries(rows, category=None):
    """{variant: figures} of the records, in the order of the settings."""
    return {name: figures.summarise(found) for name, found in answers(rows, category).items()}


def speeds(rows, category=None):
    """{variant with drafts: (how many times as fast as the setting without them, lower, upper)}, where both were measured."""
    of = answers(rows, category)
    plain = {name: name.partition("+")[0] for name in of if "+" in name}
    return {name: figures.speed(of[name], of[other]) for name, other in plain.items() if other in of}


def number(triple, digits=0, scale=1, unit=""):
    """'12.3 [11.9, 12.8]' of (value, lower, upper); '-' if there is no value."""
    if triple[0] is None:
        return "-"
    value, *ends = (None if part is None else f"{scale * part:.{digits}f}" for part in triple)
    return f"{value}{unit}" + (f" [{ends[0]}, {ends[1]}]" if ends[0] is not None else "")


def quality(task, triple):
    shown = QUALITIES[task]
    return number(triple, shown.digits, shown.scale, shown.unit)


def lines(rows, markdown=False, category=None):
    """The table as lines of text: for a terminal, or in Markdown."""
    task = rows[0]["task"]
    table = [["setting", QUALITIES[task].name, "answer tokens/s", "beam tokens/s", "block efficiency", "ms per question"]]
    found, faster = summaries(rows, category), speeds(rows, category)
    with_joules = any(s["joules"] is not None for s in found.values())
    table[0] += ["speed"] * bool(faster)
    table[0] += ["distinct answers"] * (task == "prompts") + ["J per question"] * with_joules
    for name, s in found.items():
        cells = [f"`{name}`" if markdown else name, quality(task, s["quality"]), number(s["answer_rate"]), number(s["beam_rate"]),
                 number(s["block_efficiency"], 2), number(s["seconds"], 1, 1000)]
        cells += [number(faster[name], 2) if name in faster else ""] * bool(faster)
        cells += [f"{s['distinct']:.2f}"] * (task == "prompts")
        cells += ["-" if s["joules"] is None else f"{s['joules']:.3f}"] * with_joules
        table.append(cells)
    return _in_lines(table, markdown)


def category_lines(rows, markdown=False):
    """One table with a row for each category and one for all: of every variant the quality, the answers' tokens per second, the number of
    distinct answers where there are several, and block efficiency where there are drafts. Values without their intervals."""
    task, variants = rows[0]["task"], list(summaries(rows))
    categories = sorted({row["category"] for row in rows if row["kind"] == "answer"})
    whole = summaries(rows)
    several = [name for name in variants if task == "prompts" and whole[name]["distinct"] > 1]
    drafted = [name for name in variants if whole[name]["drafted"]]
    table = [["category", "questions"]]
    for name in variants:
        named = f"`{name}`" if markdown else name
        table[0] += [f"{named}: {QUALITIES[task].name}", "tokens/s"] + ["distinct"] * (name in several) + ["block efficiency"] * (name in drafted)
    for category in (*categories, None):
        found = summaries(rows, category)
        questions = {row["line"] for row in rows if row["kind"] == "answer" and category in (None, row["category"])}
        cells = ["all" if category is None else category or "no category", str(len(questions))]
        for name in variants:
            s = found.get(name)
            if s is None:
                cells += ["-"] * (2 + (name in several) + (name in drafted))
                continue
            cells += [quality(task, (s["quality"][0], None, None)), number((s["answer_rate"][0], None, None))]
            cells += [f"{s['distinct']:.2f}"] * (name in several) + [number((s["block_efficiency"][0], None, None), 2)] * (name in drafted)
        table.append(cells)
    return _in_lines(table, markdown)


def _in_lines(table, markdown):
    """The cells, the head first, as lines of Markdown or aligned."""
    if markdown:
        table.insert(1, ["---"] * len(table[0]))
        return ["| " + " | ".join(row) + " |" for row in table]
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    return ["  ".join(cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths)))
            for row in table]


def comparison_lines(rows, against, markdown=False):
    """Every variant against one of them, question by question: what only one has right, or the difference of BLEU."""
    of = answers(rows)
    by_bleu = rows[0]["task"] == "translation"
    table = [["setting", f"BLEU minus that of {against}"] if by_bleu else ["setting", "right only here", f"right only with {against}", "p"]]
    for name in of:
        if name != against:
            cells = _bleu_cells(of[name], of[against]) if by_bleu else _match_cells(of[name], of[against])
            table.append([f"`{name}`" if markdown else name, *cells])
    return _in_lines(table, markdown)


def _match_cells(records, others):
    wins, losses, p = figures.compare(records, others)
    return [str(wins), str(losses), f"{p:.3f}" if p >= 0.001 else "< 0.001"]


def _bleu_cells(records, others):
    pairs = figures.common(records, others, "bleu_counts")
    return [number(figures.bleu_difference(*zip(*pairs)), 1) if pairs else "-"]


def warnings(rows):
    """What a reader of the table must know."""
    found = []
    for name, s in summaries(rows).items():
        if name.endswith("+drafts") and not s["drafted"]:
            found.append(f"{name}: no draft reached it; is a draft node running?")
        elif name.endswith("+drafts") and s["plain_rounds"]:
            found.append(f"{name}: {s['plain_rounds']} rounds had no draft")
    left_out = sum(row["kind"] == "left_out" for row in rows)
    if left_out:
        found.append(f"{left_out} questions did not fit the model's context and are left out")
    return found
