"""The table of one or several runs of recommendation.py, from their records."""
import collections
import statistics

from load_figures import percentiles

WORK = ("prompt_tokens", "width", "clients")


def works(rows):
    """{(prompt tokens, width, clients): {engine: {(run, turn): record}}} of the answers, in the order of their first appearance."""
    found, run = {}, 0
    for row in rows:
        run += row["kind"] == "run"
        if row["kind"] == "answer":
            found.setdefault(tuple(row[part] for part in WORK), {}).setdefault(row["engine"], {})[run, row["turn"]] = row
    return found


def rate(row):
    return row["clients"] / row["seconds"]


def engines_of(rows):
    """In the order in which they were loaded; Coppice is first."""
    return list(dict.fromkeys(row["engine"] for row in rows if row["kind"] == "engine"))


def against(turns, base):
    """The median over turns of this engine's rate divided by the other's in the same turn; None without a common turn."""
    common = [rate(turns[turn]) / rate(base[turn]) for turn in turns if turn in base]
    return statistics.median(common) if common else None


def checks(rows):
    """{(prompt tokens, width, clients, engine): [records]}"""
    found = collections.defaultdict(list)
    for row in rows:
        if row["kind"] == "check":
            found[(*(row[part] for part in WORK), row["engine"])].append(row)
    return found


def lines(rows):
    table = [["prompt", "W", "clients", "engine", "requests/s", "of coppice", "latency, ms: p50", "p95", "illegal", "same sets", "of the set", "repeated, ms"]]
    checked = checks(rows)
    for work, by_engine in works(rows).items():
        base = by_engine.get("coppice", {})
        for engine in engines_of(rows):
            turns = by_engine.get(engine)
            if not turns:
                continue
            answers = list(turns.values())
            rates, share = [rate(row) for row in answers], against(turns, base)
            latency = percentiles([each for row in answers for each in row["latencies_s"]])
            illegal = sum(row["illegal"] for row in answers) / sum(row["returned"] for row in answers)
            compared = checked.get((*work, engine), [])
            repeats = [row["repeat_s"] for row in answers if "repeat_s" in row]
            table.append([*map(str, work), engine, f"{statistics.median(rates):.2f} [{min(rates):.2f}, {max(rates):.2f}]",
                          "-" if share is None or engine == "coppice" else f"{share:.3f}", f"{latency['p50']:.0f}", f"{latency['p95']:.0f}",
                          f"{illegal:.1%}", f"{sum(row['same'] for row in compared)} of {len(compared)}" if compared else "-",
                          f"{statistics.mean(row['share'] for row in compared):.1%}" if compared else "-",
                          f"{1000 * statistics.median(repeats):.0f}" if repeats else "-"])
    return table


def growth(rows):
    """A sentence for each engine, prompt and neighbouring widths: the median ratio of the repeated requests of a turn, which decode only."""
    said, found = [], works(rows)
    for engine in engines_of(rows):
        times = collections.defaultdict(dict)
        for (prompt, width, _), by_engine in found.items():
            repeats = {turn: row["repeat_s"] for turn, row in by_engine.get(engine, {}).items() if "repeat_s" in row}
            if repeats:
                times[prompt][width] = repeats
        for prompt, by_width in times.items():
            widths = sorted(by_width)
            for narrow, wide in zip(widths, widths[1:]):
                ratios = [by_width[wide][turn] / by_width[narrow][turn] for turn in by_width[wide] if turn in by_width[narrow]]
                if ratios:
                    said.append(f"{engine}, {prompt} tokens: decoding takes {statistics.median(ratios):.2f} times as long with W = {wide} as with {narrow}")
    return said


def notes(rows):
    said = growth(rows)
    said += list(dict.fromkeys(f"absent: {row['reason']}" for row in rows if row["kind"] == "absent"))
    said += list(dict.fromkeys(f"version: {row['engine']} {row['version']}" for row in rows if row["kind"] == "engine"))
    for row in rows:
        if row["kind"] == "run":
            said.append(f"run of {row['date']}: {row['type']}, {row['items']:,} items, {row['threads']} threads on {row['usable_cores']} of "
                        f"{row['cores']} cores, {row['policy']}, {row['cpu']}: {row['command']}")
        if row["kind"] == "load":
            said.append(f"load of the machine {row['when']}: {' '.join(f'{value:.1f}' for value in row['load'])} (1, 5, 15 minutes)")
    return said
