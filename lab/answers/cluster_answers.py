#!/usr/bin/env python3
"""Records the answers of a whole cluster over HTTP, tokens and scores. Or sends the recorded requests to this build and compares
the answers. Each request is sent alone and then among others; both must give the recorded answer.

  cluster_answers.py --tp 2 --dtype f32 --out FILE        records
  cluster_answers.py --compare FILE                       exit status 1 when an answer differs

Half of the requests go to a cluster with a draft node. They use the methods whose text depends only on seed and target. The other
half go to a cluster without a draft node, where every round is plain. They use all methods. COPPICE_BIN names the folder of the
programs.
"""
import argparse
import concurrent.futures
import json
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/cluster"))
from api_client import outcome  # noqa: E402
from cluster import ROOT, Cluster  # noqa: E402

TOGETHER = 8
VOCABULARY = 512
SHAPES = dict(draft_width=(1, 2, 4, 8), draft_depth=(1, 2, 4, 6))
OPTIONS = dict(width_threshold=(0.3, 0.7, 0.9), draft_beams=(1, 2, 6), mjsd_threshold=(0, 0.4, 1), fallback_threshold=(0.2, 0.8),
               rollback_threshold=(0.5, 3), joint_tokens=(1, 2, 3))


def prompts():
    with open(ROOT / "lab/experiments/prompts.jsonl", encoding="utf8") as file:
        return [json.loads(line)["prompt"] for line in file]


def add_sampling(body, row, draw):
    if body["decoding"] == "beam_search":
        return
    if row["greedy_only"]:
        body["temperature"] = 0
        return
    zero = body["decoding"] == "multinomial" and draw.random() < 0.2
    body["temperature"] = 0 if zero else draw.choice((0.6, 1, 1.3))
    if draw.random() < 0.4:
        body["top_k"] = draw.choice((1, 2, 10, 40))
    if draw.random() < 0.4:
        body["top_p"] = draw.choice((0.5, 0.8, 0.95))
    if draw.random() < 0.3:
        body["min_p"] = draw.choice((0.02, 0.1, 0.3))
    body["sampling_scope"] = draw.choice(row["sampling_scopes"])


def add_ends(body, draw):
    body["max_tokens"] = draw.choice((1, 3, 12, 16, 24))
    body["ignore_eos"] = draw.random() < 0.3
    if draw.random() < 0.4:
        body["stop_token_ids"] = draw.sample(range(3, 400), 20)
    if draw.random() < 0.3:
        body["min_tokens"] = min(body["max_tokens"], draw.choice((1, 4, 9)))
    if draw.random() < 0.3:
        body["logit_bias"] = {str(draw.randrange(3, VOCABULARY)): draw.choice((-100, -2, 0.75, 6)) for _ in range(3)}


def add_beams(body, row, draw):
    if body["decoding"] == "multinomial":
        return
    body["beam_width"] = draw.randint(1, 8)
    body["n"] = draw.randint(1, body["beam_width"])
    body["length_penalty"] = draw.choice((0, 0.5, 1, 1.7))
    body["early_stopping"] = draw.choice((True, False))
    if body["decoding"] == "beam_sampling":
        body["refill"] = draw.choice((True, False))
        if "beam_duplicates" in row["options"]:
            body["beam_duplicates"] = draw.choice(("count", "once"))


def speculative(body, row, drafted, draw):
    fields = dict(method=row["name"])
    if not row["lossless"]:
        fields["allow_lossy"] = True
    for name, values in OPTIONS.items():
        if name in row["options"] and draw.random() < 0.4:
            fields.update({name: draw.choice(values), "allow_lossy": True})
    if "width_threshold" in fields:
        fields["min_width"] = draw.randint(1, body["beam_width"])
    if drafted and draw.random() < 0.75:
        fields.update({name: draw.choice(values) for name, values in SHAPES.items()})
    return fields


def make_body(row, decoding, drafted, draw):
    body = dict(prompt=draw.choice(prompts()), decoding=decoding, seed=draw.randrange(2**53), return_token_ids=True)
    add_sampling(body, row, draw)
    add_ends(body, draw)
    add_beams(body, row, draw)
    body["speculative"] = False if drafted and draw.random() < 0.2 else speculative(body, row, drafted, draw)
    return body


def make_requests(rows, count, seed, drafted):
    """Request bodies for all methods and decodings in turn. If `drafted`, only for the reproducible methods."""
    pairs = [(row, decoding) for row in rows if row["reproducible"] or not drafted for decoding in row["decodings"]]
    return [make_body(*pairs[i % len(pairs)], drafted, random.Random(f"{seed} {drafted} {i}")) for i in range(count)]


def ask(api, body):
    """The part of the answer that is compared, as it would be read from a file."""
    status, answer = api.post(body)
    result = outcome(answer) if status == 200 else [status, answer["error"]["code"], answer["error"]["param"]]
    return json.loads(json.dumps(result))


def ask_together(api, bodies):
    """All answers when requests run concurrently, in another order than alone."""
    order = sorted(range(len(bodies)), key=lambda i: (i * 7919) % len(bodies))
    answers = [None] * len(bodies)
    for begin in range(0, len(order), TOGETHER):
        part = order[begin:begin + TOGETHER]
        for i, result in zip(part, together(api, [bodies[i] for i in part])):
            answers[i] = result
    return answers


def together(api, bodies):
    with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
        return list(pool.map(lambda body: ask(api, body), bodies))


def first_difference(recorded, now, place=""):
    """Says where two answers first differ, or None if they are the same."""
    if recorded == now and type(recorded) is type(now):
        return None
    if isinstance(recorded, list) and isinstance(now, list) and len(recorded) == len(now):
        return next(filter(None, (first_difference(a, b, f"{place}[{i}]") for i, (a, b) in enumerate(zip(recorded, now)))), None)
    return f"answer{place}: recorded {recorded!r}, now {now!r}"


def report(name, bodies, recorded, answers):
    """Prints how many answers differ, and the first that does. Returns the number."""
    differing = [(i, d) for i, d in enumerate(map(first_difference, recorded, answers)) if d]
    print(f"{name}: {len(differing)} of {len(bodies)} answers differ", flush=True)
    for i, difference in differing[:1]:
        print(f"  request {i} {json.dumps(bodies[i])}\n  {difference}")
    return len(differing)


def start(recording, drafted):
    return Cluster(tp=recording["tp"], dtype=recording["dtype"], drafts=1 if drafted else 0)


def record(options):
    recording = dict(format=1, tp=options.tp, dtype=options.dtype, seed=options.seed, clusters=[])
    differing = 0
    for drafted in (True, False):
        with start(recording, drafted) as cluster:
            rows = json.loads(cluster.api.get("/v1/models")[1])["data"][0]["capabilities"]["methods"]
            bodies = make_requests(rows, options.requests // 2, options.seed, drafted)
            answers = [ask(cluster.api, body) for body in bodies]
            refused = sum(isinstance(answer[0], int) for answer in answers)
            name = "with a draft node" if drafted else "without draft node"
            print(f"{name}: {len(bodies)} requests, {refused} refused")
            differing += report(f"{name}, together", bodies, answers, ask_together(cluster.api, bodies))
            recording["clusters"].append(dict(drafted=drafted, requests=[dict(body=b, answer=a) for b, a in zip(bodies, answers)]))
    with open(options.out, "w", encoding="utf8") as file:
        json.dump(recording, file, indent=None, separators=(",", ":"))
        file.write("\n")
    return differing


def compare(options):
    with open(options.compare, encoding="utf8") as file:
        recording = json.load(file)
    differing = 0
    for part in recording["clusters"]:
        bodies, recorded = ([request[key] for request in part["requests"]] for key in ("body", "answer"))
        name = f"tp {recording['tp']}, {recording['dtype']}, " + ("with a draft node" if part["drafted"] else "without draft node")
        with start(recording, part["drafted"]) as cluster:
            differing += report(f"{name}, alone", bodies, recorded, [ask(cluster.api, body) for body in bodies])
            differing += report(f"{name}, together", bodies, recorded, ask_together(cluster.api, bodies))
    return differing


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tp", type=int, default=1, help="for a recording: number of ranks of the replica")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32", help="for a recording: type of the weights")
    parser.add_argument("--requests", type=int, default=300, help="for a recording: number of requests")
    parser.add_argument("--seed", type=int, default=1, help="for a recording: which requests")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--out", help="file to write the recording to")
    action.add_argument("--compare", help="recording to compare with")
    options = parser.parse_args()
    sys.exit(1 if (record(options) if options.out else compare(options)) else 0)


if __name__ == "__main__":
    main()
