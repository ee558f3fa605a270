#!/usr/bin/env python3
"""Prints where the time of an engine goes, from a trace: a file of a worker's --trace_file, or the answer of GET /debug/trace?seconds=N.

    lab/bench/cluster/overhead.py trace.json
    curl -s 'localhost:8000/debug/trace?seconds=5' | lab/bench/cluster/overhead.py -

A part's time is its own, without that of the parts in it. Model computation is `submit`, `body`, `head` and `pass`: on a CPU `submit` has the
check of the plan and its way to other ranks too. `wait` is time without work, or for drafts that are due. The rest is the engine's overhead."""
import argparse
import collections
import json
import sys

MODEL = ("submit", "body", "head", "pass")
LOOP = 0  # the track of the engine's thread


def read(text):
    """The events of a document, or of a file that was cut off before its end."""
    try:
        trace = json.loads(text)
    except ValueError:
        if ",\n" not in text:
            sys.exit("this is no trace: " + (text[:100] or "it is empty"))
        trace = json.loads(text[:text.rindex(",\n")] + "]")
    return [event for event in (trace["traceEvents"] if isinstance(trace, dict) else trace) if event]


def own_times(spans):
    """{name: [count, own microseconds]} of spans that nest, and the time from the first to the last of them."""
    times = collections.defaultdict(lambda: [0, 0.0])
    open_spans = []  # (end, name)
    for span in sorted(spans, key=lambda s: (s["ts"], -s["dur"])):
        while open_spans and open_spans[-1][0] <= span["ts"] + 0.0005:
            open_spans.pop()
        times[span["name"]][0] += 1
        times[span["name"]][1] += span["dur"]
        if open_spans:
            times[open_spans[-1][1]][1] -= span["dur"]
        open_spans.append((span["ts"] + span["dur"], span["name"]))
    return times, max(s["ts"] + s["dur"] for s in spans) - min(s["ts"] for s in spans)


def shares(events, process):
    """{steps, rows, step_us, model_share, wait_share, overhead_share, parts: {name: [count, microseconds]}} of a replica. Shares are of
    the time from its first to its last span without waits; `between` is time of the loop outside of all parts."""
    spans = [e for e in events if e.get("ph") == "X" and e["pid"] == process and e["tid"] == LOOP]
    steps = [e for e in spans if e["name"] == "step"]
    if not steps:
        return None
    parts, whole = own_times(spans)
    parts["between"] = [len(steps), whole - sum(us for _, us in parts.values())]
    wait = parts.pop("wait", [0, 0.0])
    busy = whole - wait[1]
    model = sum(parts[name][1] for name in MODEL if name in parts)
    return {"steps": len(steps), "rows": sum(e["args"]["rows"] for e in steps) / len(steps), "step_us": busy / len(steps),
            "wait_share": wait[1] / whole, "model_share": model / busy, "overhead_share": 1 - model / busy, "parts": dict(parts)}


def print_shares(name, found):
    print(f"{name}: {found['steps']} steps of {found['rows']:.1f} rows in the mean, {found['step_us']:.0f} us each without waits; "
          f"waits {found['wait_share']:.1%} of the time")
    print(f"  model {found['model_share']:.1%}, engine overhead {found['overhead_share']:.1%} of a step, by part:")
    busy = found["step_us"] * found["steps"]
    for part, (count, us) in sorted(found["parts"].items(), key=lambda entry: -entry[1][1]):
        print(f"  {part:13s} {us / found['steps']:9.1f} us a step {us / busy:7.2%}  {count:7d} times{'  (model)' if part in MODEL else ''}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", help="file, or - for standard input")
    arguments = parser.parse_args()
    with sys.stdin if arguments.trace == "-" else open(arguments.trace, encoding="utf8") as file:
        events = read(file.read())
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    found = False
    for process in sorted({e["pid"] for e in events}):
        if figures := shares(events, process):
            print_shares(names.get(process, f"process {process}"), figures)
            found = True
    return 0 if found else "the trace has no steps"


if __name__ == "__main__":
    sys.exit(main())
