#!/usr/bin/env python3
"""Measures drafts without a draft model: one cluster without draft nodes, one request at a time, each prompt with such
drafts and without, by turns in one run; the answers must be equal. A ratio is that of the two answers to one prompt, taken
one after the other.

  lab/bench/suffix/suffix_drafts.py --target DIR [--kinds code_editing,open] [--tokens 256] [--turns 3] [--json FILE]

The prompts are those of the text files beside this program. Uses only the Python standard library. Build the programs first
(deploy/build.sh)."""
import argparse
import json
import math
import pathlib
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "tests/cluster"))
from cluster import Cluster  # noqa: E402  starts clusters for tests

COMPLETION = "The file:\n```\n{text}\n```\n{instruction} The whole file after the change:\n```\n"
KINDS = ("code_editing", "summarising", "retrieval", "sql", "open")


def requests_of(kind):
    """The requests of a file, without their sampling parameters. A part of the file is a line "@@ INSTRUCTION", then the
    text that it is about. Code to edit is asked for as a completion, because a model of this size copies only then."""
    requests = []
    for part in (HERE / f"{kind}.txt").read_text().split("@@ ")[1:]:
        instruction, _, text = part.partition("\n")
        if kind == "code_editing":
            requests.append({"prompt": COMPLETION.format(text=text.strip(), instruction=instruction), "stop": ["\n```"]})
        else:
            requests.append(chat(f"{instruction}\n\n{text.strip()}".strip()))
    return requests


def chat(text):
    return {"messages": [{"role": "user", "content": text}]}


def ask(cluster, request, drafts, seed, arguments):
    """(seconds per token after the first, token ids, usage with the time of drafting) of an answer."""
    body = dict(request, max_tokens=arguments.tokens, temperature=arguments.temperature, seed=seed,
                speculative="auto" if drafts else False, return_token_ids=True)
    begin = time.perf_counter()
    answer = cluster.api.complete(body, "/v1/chat/completions" if "messages" in request else "/v1/completions")
    seconds = time.perf_counter() - begin
    ids = answer["choices"][0]["token_ids"]
    seconds -= answer["timings"]["prefill_ms"] / 1e3
    usage = dict(answer["usage"]["speculation"], draft_ms=answer["timings"]["draft_ms"])
    return seconds / max(1, len(ids) - 1), ids, usage


def measure(cluster, kind, arguments):
    ratios, plain_s, drafted_s, tokens, seconds = [], [], [], 0, {False: 0.0, True: 0.0}
    layers = passes = drafted = accepted = rounds = draft_ms = 0
    for turn in range(arguments.turns):
        for i, request in enumerate(requests_of(kind)):
            took, same = {}, {}
            for drafts in ((False, True) if (turn + i) % 2 else (True, False)):
                took[drafts], same[drafts], usage = ask(cluster, request, drafts, turn, arguments)
                if drafts:
                    layers, passes = layers + usage["layers"], passes + usage["target_passes"]
                    rounds, draft_ms = rounds + usage["rounds"], draft_ms + usage["draft_ms"]
                    drafted, accepted = drafted + usage["drafted_nodes"], accepted + usage["accepted_nodes"]
            if same[True] != same[False]:
                raise SystemExit(f"{kind}: prompt {i} has other tokens with drafts than without")
            ratios.append(took[False] / took[True])
            for drafts in took:
                seconds[drafts] += took[drafts] * (len(same[True]) - 1)
            plain_s.append(took[False])
            drafted_s.append(took[True])
            tokens += len(same[True])
    means = [statistics.geometric_mean(ratios[i::len(ratios) // arguments.turns]) for i in range(len(ratios) // arguments.turns)]
    return {"kind": kind, "prompts": len(means), "tokens": tokens // arguments.turns,
            "plain_ms_per_token": round(1e3 * statistics.median(plain_s), 2),
            "drafted_ms_per_token": round(1e3 * statistics.median(drafted_s), 2),
            "speedup": round(statistics.geometric_mean(ratios), 3), "speedup_of_sums": round(seconds[False] / seconds[True], 3),
            "error": round(statistics.stdev(map(math.log, ratios)) / math.sqrt(len(ratios)), 3),
            "of_prompts": [round(mean, 2) for mean in means], "layers_per_pass": round(layers / max(1, passes), 2),
            "drafted": drafted, "accepted": accepted, "drafting_us_per_round": round(1e3 * draft_ms / max(1, rounds), 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True, type=pathlib.Path)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--worker_flag", action="append", default=[], help="a further flag of the worker; may be repeated")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    figures = []
    with Cluster(target=arguments.target, tp=1, drafts=0, dtype=arguments.dtype, worker_flags=arguments.worker_flag) as cluster:
        for drafts in (False, True):
            ask(cluster, chat("Count to ten, three times."), drafts, 0, arguments)  # warm-up
        for kind in arguments.kinds.split(","):
            figures.append(measure(cluster, kind, arguments))
            print(json.dumps(figures[-1]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
