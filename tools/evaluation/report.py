"""The table of a run, from its records."""
from . import figures


def labels(rows):
    """{variant: (label, named, kind)} in the order in which they were asked for."""
    found = {}
    for row in rows:
        if row["kind"] == "run":
            found.update(row["labels"])
    return found


def summaries(rows, category=None):
    """{variant: figures} of the records, in the order of the settings."""
    of = {name: [] for name in labels(rows)}
    for row in rows:
        if row["kind"] == "answer" and (category is None or row["category"] == category):
            of.setdefault(row["variant"], []).append(row)
    return {name: figures.summarise(found) for name, found in of.items() if found}


def number(triple, digits=0, scale=1, unit=""):
    """'12.3 [11.9, 12.8]' of (value, lower, upper); '-' if there is no value."""
    if triple[0] is None:
        return "-"
    value, *ends = (None if part is None else f"{scale * part:.{digits}f}" for part in triple)
    return f"{value}{unit}" + (f" [{ends[0]}, {ends[1]}]" if ends[0] is not None else "")


def quality(task, triple):
    return number(triple, 1, 100, " %") if task == "wikisql" else number(triple, 3)


HEADS = {"wikisql": "exact match", "prompts": "log-likelihood per token"}


def lines(rows, markdown=False, category=None):
    """The table as lines of text: for a terminal, or in Markdown."""
    task = rows[0]["task"]
    table = [["setting", HEADS[task], "answer tokens/s", "beam tokens/s", "layers per pass", "ms per question"]]
    found = summaries(rows, category)
    with_joules = any(s["joules"] is not None for s in found.values())
    table[0] += ["distinct answers"] * (task == "prompts") + ["J per question"] * with_joules
    for name, s in found.items():
        cells = [f"`{name}`" if markdown else name, quality(task, s["quality"]), number(s["answer_rate"]), number(s["beam_rate"]),
                 number(s["layers_per_pass"], 2), number(s["seconds"], 1, 1000)]
        cells += [f"{s['distinct']:.2f}"] * (task == "prompts")
        cells += ["-" if s["joules"] is None else f"{s['joules']:.3f}"] * with_joules
        table.append(cells)
    if markdown:
        table.insert(1, ["---"] * len(table[0]))
        return ["| " + " | ".join(row) + " |" for row in table]
    return _aligned(table)


def _aligned(table):
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    return ["  ".join(cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths)))
            for row in table]


def comparison_lines(rows, against, markdown=False):
    """Every variant against one of them, question by question (exact match only)."""
    of = {}
    for row in rows:
        if row["kind"] == "answer":
            of.setdefault(row["variant"], []).append(row)
    table = [["setting", "right only here", f"right only with {against}", "p"]]
    for name in labels(rows):
        if name in of and name != against:
            wins, losses, p = figures.compare(of[name], of[against])
            table.append([f"`{name}`" if markdown else name, str(wins), str(losses), f"{p:.3f}" if p >= 0.001 else "< 0.001"])
    if markdown:
        table.insert(1, ["---"] * 4)
        return ["| " + " | ".join(row) + " |" for row in table]
    return _aligned(table)


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
