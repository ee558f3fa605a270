#!/usr/bin/env python3
"""Starts a cluster with a synthetic pair and measures it: load time, memory, the share of the control plane in a round, and
decoding with and without drafts. It sends one request at a time; requests with and without drafts alternate in one run.

  lab/bench/cluster/measure.py --pair DIR [--tp 1] [--requests 6] [--tokens 128] [--dtype bf16] [--json FILE]

DIR holds target/ and draft/; lab/make_pair.py makes it (needs numpy), for example
  lab/make_pair.py --layers 24 --hidden 768 --heads 12 --kv-heads 12 --ffn 2048 --vocab 4096 --draft-layers 1 \\
                     --overlap 0.75 --dtype bf16 --out DIR
Uses only the Python standard library. Build the programs first (deploy/build.sh). --kinds selects the kinds of requests.
"""
import argparse
import json
import pathlib
import random
import re
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/cluster"))
from cluster import Cluster  # noqa: E402  starts clusters for tests

from overhead import read  # noqa: E402


def byte_characters():
    """The 256 characters that byte-level tokenizers use for bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in printable]
    return [chr(b) for b in printable] + [chr(256 + i) for i in range(len(rest))]


def give_tokenizer(folder, vocab):
    """Writes a tokenizer of single bytes and numbered tokens. The synthetic pair has none, and a server needs one."""
    path = folder / "tokenizer.json"
    if path.exists():
        return
    tokens = ["<unk>", "<s>", "</s>"] + byte_characters()
    tokens += [f"t{i}" for i in range(len(tokens), vocab)]
    added = [{"id": i, "content": tokens[i], "special": True, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False} for i in range(3)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    path.write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {t: i for i, t in enumerate(tokens)}, "merges": []}}))


def resident_mb(pid, field):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+) kB", text).group(1)) / 1024


def prompt_ids(seed, vocab, length=48):
    """Token ids as the synthetic models expect them: Zipf-like, without special tokens."""
    rng = random.Random(seed)
    weights = [1 / (i + 2.7) ** 1.2 for i in range(vocab - 3)]
    return rng.choices(range(3, vocab), weights, k=length)


def ask(cluster, kind, seed, tokens, vocab, speculative, shape):
    body = {"prompt": prompt_ids(seed, vocab), "max_tokens": tokens, "ignore_eos": True, "seed": seed,
            "speculative": speculative, "return_token_ids": True}
    if speculative and shape:
        width, depth = shape.split("x")
        body["speculative"] = {"draft_width": int(width), "draft_depth": int(depth)}
    if kind != "multinomial":
        body.update(decoding=kind, beam_width=4, n=1)
    begin = time.perf_counter()
    answer = cluster.api.complete(body)
    elapsed = time.perf_counter() - begin
    return elapsed, answer["choices"][0]["token_ids"], answer["usage"]["speculation"], answer["timings"]


def compare(cluster, kind, arguments, vocab):
    """Alternates requests with and without drafts. Returns the figures of this kind."""
    seconds = {True: [], False: []}
    layers = passes = plain_rounds = 0
    for i in range(arguments.requests + 1):
        same = {}
        for speculative in (False, True):
            elapsed, ids, usage, _ = ask(cluster, kind, 100 + i, arguments.tokens, vocab, speculative,
                                         arguments.shape)
            same[speculative] = ids
            if i == 0:
                continue  # warm-up
            seconds[speculative].append(elapsed)
            if speculative:
                layers, passes = layers + usage["layers"], passes + usage["target_passes"]
                plain_rounds += usage["plain_rounds"]
        if same[True] != same[False]:
            raise SystemExit(f"{kind}: request {i} gave other tokens with drafts than without")
    rate = {s: arguments.tokens / statistics.median(seconds[s]) for s in seconds}
    return {"kind": kind, "plain_tokens_per_s": round(rate[False], 1), "speculative_tokens_per_s": round(rate[True], 1),
            "speedup": round(rate[True] / rate[False], 2), "block_efficiency": round(layers / max(1, passes), 2),
            "plain_rounds": plain_rounds}


def control_plane(trace):
    """Medians over the drafted rounds, in microseconds. `control` is messages, scheduling, verification and commit: the two
    messages, and the leader's work between the arrival of a draft and its next request. `overhead` is the whole round without
    the passes of target and draft: `control`, and the draft node's work outside its passes, which is to choose the forest."""
    rounds = [event["args"] for event in read(trace.read_text()) if event["name"] == "round" and event["ph"] == "b"]
    rows = [r for r in rounds if r["draft_model_us"] > 0]
    middle = lambda value: round(statistics.median(map(value, rows)), 1)
    return {"rounds": len(rows), "rows": middle(lambda r: r["rows"]), "round_us": middle(lambda r: r["round_us"]),
            "forward_us": middle(lambda r: r["forward_us"]), "draft_model_us": middle(lambda r: r["draft_model_us"]),
            "overhead_us": middle(lambda r: r["round_us"] - r["forward_us"] - r["draft_model_us"]),
            "control_us": middle(lambda r: r["round_us"] - r["forward_us"] - r["draft_us"]),
            "of_which_drafter_us": middle(lambda r: r["draft_us"] - r["draft_model_us"]),
            "of_which_messages_us": middle(lambda r: r["draft_wait_us"] - r["draft_us"]),
            "of_which_leader_us": middle(lambda r: r["round_us"] - r["forward_us"] - r["draft_wait_us"])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", required=True, type=pathlib.Path)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0, help="threads of each worker rank and of the draft node; 0: all cores")
    parser.add_argument("--requests", type=int, default=6, help="measured requests of each kind, after one warm-up")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--worker_flag", action="append", default=[], help="a further flag of the worker; may be repeated")
    parser.add_argument("--draft_flag", action="append", default=[], help="a further flag of the draft node; may be repeated")
    parser.add_argument("--kinds", default="beam_sampling,beam_search,multinomial")
    parser.add_argument("--shape", help="WIDTHxDEPTH of every forest instead of the server's choice")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    target, draft = arguments.pair / "target", arguments.pair / "draft"
    vocab = json.loads((target / "config.json").read_text())["vocab_size"]
    give_tokenizer(target, vocab)
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "trace.json"
        threads = (f"--threads={arguments.threads}",)
        flags = (*threads, f"--trace_file={trace}")
        with Cluster(target=target, draft=draft, tp=arguments.tp, drafts=1, dtype=arguments.dtype,
                     worker_flags=(*flags, *arguments.worker_flag),
                     draft_flags=(*threads, *arguments.draft_flag)) as cluster:
            ranks = cluster.api.cluster()["replicas"][0]["ranks"]
            log = "".join(launched.output() for launched in cluster.launched)
            ready = [line for line in log.splitlines() if " ready in " in line and str(target) in line]
            figures["load"] = {"ready_s": max(float(re.search(r"ready in ([\d.]+) s", r).group(1)) for r in ready),
                               "weights_mb_of_a_rank": float(re.search(r"([\d.]+) MB of weights", ready[0]).group(1)),
                               "leader_resident_mb": round(resident_mb(ranks[0]["pid"], "VmRSS"), 1)
                               if "pid" in ranks[0] else None}
            print(json.dumps(figures["load"]), flush=True)
            figures["kinds"] = []
            for kind in arguments.kinds.split(","):
                figures["kinds"].append(compare(cluster, kind, arguments, vocab))
                print(json.dumps(figures["kinds"][-1]), flush=True)
            if figures["load"]["leader_resident_mb"]:
                figures["load"]["leader_peak_mb"] = round(resident_mb(ranks[0]["pid"], "VmHWM"), 1)
        figures["control_plane"] = control_plane(trace)
        print(json.dumps(figures["control_plane"]), flush=True)
    print(json.dumps(figures["load"]))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
