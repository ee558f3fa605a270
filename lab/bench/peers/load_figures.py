"""What a run of load.py says: tokens per second, time to the first token and between tokens, from the requests of a point or its records."""
import math

PERCENTILES = (50, 95, 99)


def percentiles(values):
    """{"p50": ...} in milliseconds of seconds, linearly interpolated; None without values."""
    found, ordered = {}, sorted(values)
    for percent in PERCENTILES:
        if not ordered:
            found[f"p{percent}"] = None
            continue
        at = (len(ordered) - 1) * percent / 100
        low, high = ordered[math.floor(at)], ordered[math.ceil(at)]
        found[f"p{percent}"] = round(1000 * (low + (high - low) * (at - math.floor(at))), 2)
    return found


def point_figures(requests, begin_s, end_s):
    """The figures of the time from begin_s to end_s. requests: {"sent_s", "times_s": [of events with text], "tokens": of a whole answer, or
    None}. An event counts as many tokens as the events of whole answers have in the mean: with drafts and in beams it brings several."""
    whole = [r for r in requests if r["tokens"] and r["times_s"]]
    per_event = sum(r["tokens"] for r in whole) / sum(len(r["times_s"]) for r in whole) if whole else 1.0
    events = sum(begin_s <= at <= end_s for r in requests for at in r["times_s"])
    begun = [r for r in requests if r["sent_s"] >= begin_s and r["times_s"]] or [r for r in requests if r["times_s"]]
    gaps = [b - a for r in requests for a, b in zip(r["times_s"], r["times_s"][1:]) if begin_s <= b <= end_s]
    return {"tokens_per_s": round(events * per_event / (end_s - begin_s), 2), "tokens_per_event": round(per_event, 3), "whole_answers": len(whole),
            "first_token_ms": percentiles([r["times_s"][0] - r["sent_s"] for r in begun]), "between_ms": percentiles(gaps)}


def series(rows):
    """{(engine, drafts, width): {clients: point}}, Coppice first, without drafts first. Of several files the last has a point."""
    found = {}
    for row in rows:
        if row["kind"] == "point":
            found.setdefault((row["engine"], row["drafts"], row["width"]), {})[row["clients"]] = row
    engines = list(dict.fromkeys(engine for engine, _, _ in found))
    ordered = sorted(found, key=lambda key: (key[0] != "coppice", engines.index(key[0]), key[1] != "none", key[2]))
    return {key: dict(sorted(found[key].items())) for key in ordered}


def label(key):
    engine, drafts, width = key
    return f"{engine}{', drafts' if drafts == 'auto' else ''}, width {width}"


def lines(rows):
    table = [["engine", "drafts", "width", "clients", "tokens/s", "first token, ms: p50", "p95", "p99", "between tokens, ms: p50", "p95", "p99",
              "whole answers"]]
    shown = lambda value: "-" if value is None else f"{value:.0f}" if value >= 100 else f"{value:.1f}"  # noqa: E731
    for (engine, drafts, width), points in series(rows).items():
        for clients, point in points.items():
            times = [shown(point[what][f"p{percent}"]) for what in ("first_token_ms", "between_ms") for percent in PERCENTILES]
            table.append([engine, drafts, str(width), str(clients), shown(point["tokens_per_s"]), *times, str(point["whole_answers"])])
    return table


def too_short(point):
    """Whether answers take about as long as the point. In a beam search most of a text comes at its end, so then the rate says nothing."""
    return point["whole_answers"] < point["clients"]


def falls(rows):
    """A sentence for each number of clients at which the total rate is below that of fewer clients. Points that are too short are left out."""
    said = []
    for key, points in series(rows).items():
        best, best_at = 0.0, 0
        for clients, point in points.items():
            rate = point["tokens_per_s"]
            if too_short(point):
                continue
            if rate < best:
                said.append(f"FALLS: {label(key)}: {rate:.0f} tokens/s with {clients} clients, {best:.0f} with {best_at} ({rate / best - 1:+.0%})")
            else:
                best, best_at = rate, clients
    return said


def notes(rows):
    said = falls(rows) or (["the total rate never falls as clients are added"] if any(row["kind"] == "point" for row in rows) else [])
    for key, points in series(rows).items():
        said += [f"TOO SHORT: {label(key)}: {point['whole_answers']} whole answers of {clients} clients in {point['seconds']:.0f} s; give it more --minutes"
                 for clients, point in points.items() if too_short(point)]
    said += list(dict.fromkeys(f"absent: {row['reason']}" for row in rows if row["kind"] == "absent"))
    said += list(dict.fromkeys(f"version: {row['engine']} {row['version']}" for row in rows if row["kind"] == "engine"))
    for row in rows:
        if row["kind"] == "run":
            said.append(f"run of {row['date']}: {row['type']}, {row['threads']} threads on {row['usable_cores']} of {row['cores']} cores, "
                        f"{row['policy']}, {row['cpu']}: {row['command']}")
        if row["kind"] == "load":
            said.append(f"load of the machine {row['when']}: {' '.join(f'{value:.1f}' for value in row['load'])} (1, 5, 15 minutes)")
    return said
