"""The loop of a peer's program: a line of JSON asks, a line of JSON answers. lab/bench/peers/compare.py starts the programs with the
Python of the peers' environment, as PROGRAM MODEL WORK_FOLDER TYPE THREADS, and asks:

  {"prompts": [[ids]], "width": 1, "tokens": 32}     width 1 is greedy; a larger one is a beam search

The answer is {"seconds", "ids": [[the generated ids of each prompt]]}. With "best": 3 beside these it has, for each prompt, that many
hypotheses of the beam search, best first. The first line that a program writes is {"version"} when it
is ready, or {"error"}. Standard output belongs to this protocol: what a library prints goes to standard error.

load.py measures many clients. A peer that is a server says {"version", "url"}, and is asked there. One that computes requests together in
its process has a Batch, and is asked

  {"clients": 4, "seconds": 20, "prompts": [[ids]], "lengths": [tokens of each answer]}

The answer is {"requests": [{"sent_s", "times_s": [of each token]}]}: greedy, a client's next request follows its last one. A Batch has

  add(prompt, tokens) -> name       a request
  step() -> [(name, new tokens, whether it has ended)]
  clear()                           what runs is dropped
"""
import json
import os
import sys
import time


class Refusal(Exception):
    """What this engine cannot do. The text is for the user."""


def closed_loop(batch, clients, seconds, prompts, lengths):
    """The records of all requests that were sent, those that ran when time was up too. Times count from the beginning."""
    begin, requests, running = time.perf_counter(), [], {}
    while (now := time.perf_counter() - begin) < seconds:
        while len(running) < clients:
            i = len(requests) % len(prompts)
            requests.append({"sent_s": now, "times_s": []})
            running[batch.add(prompts[i], lengths[i])] = requests[-1]
        came = batch.step()
        now = time.perf_counter() - begin
        for name, count, ended in came:
            running[name]["times_s"] += [now] * count
            if ended:
                del running[name]
    batch.clear()
    return requests


def serve(load):
    """load(folder, work, type, threads) gives (version, generate(prompts, width, tokens) -> ids), and third, if the peer can be measured
    with many clients, a Batch or the URL of its server."""
    out = os.fdopen(os.dup(1), "w", encoding="utf8")
    os.dup2(2, 1)

    def write(content):
        out.write(json.dumps(content) + "\n")
        out.flush()

    folder, work, kind, threads = sys.argv[1:]
    try:
        version, generate, *many = load(folder, work, kind, int(threads))
    except Exception as error:  # whatever a library raises: the program that asks goes on without this peer
        write({"error": str(error) or type(error).__name__})
        sys.exit(1)
    write({"version": version, "url": many[0]} if many and isinstance(many[0], str) else {"version": version})
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if "clients" in asked:
                write({"requests": closed_loop(many[0], **asked)})
                continue
            begin = time.perf_counter()
            ids = generate(**asked)
            write({"seconds": time.perf_counter() - begin, "ids": ids})
        except Exception as error:
            write({"error": str(error) or type(error).__name__})
