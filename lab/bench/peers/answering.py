"""The loop of a peer's program: a line of JSON asks, a line of JSON answers. lab/bench/peers/compare.py starts the programs with the
Python of the peers' environment, as PROGRAM MODEL WORK_FOLDER TYPE THREADS, and asks:

  {"prompts": [[ids]], "width": 1, "tokens": 32}     width 1 is greedy; a larger one is a beam search

The answer is {"seconds", "ids": [[the generated ids of each prompt]]}. The first line that a program writes is {"version"} when it
is ready, or {"error"}. Standard output belongs to this protocol: what a library prints goes to standard error."""
import json
import os
import sys
import time


class Refusal(Exception):
    """What this engine cannot do. The text is for the user."""


def serve(load):
    """load(folder, work, type, threads) gives (version, generate(prompts, width, tokens) -> ids)."""
    out = os.fdopen(os.dup(1), "w", encoding="utf8")
    os.dup2(2, 1)

    def write(content):
        out.write(json.dumps(content) + "\n")
        out.flush()

    folder, work, kind, threads = sys.argv[1:]
    try:
        version, generate = load(folder, work, kind, int(threads))
    except Exception as error:  # whatever a library raises: the program that asks goes on without this peer
        write({"error": str(error) or type(error).__name__})
        sys.exit(1)
    write({"version": version})
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            begin = time.perf_counter()
            ids = generate(asked["prompts"], asked["width"], asked["tokens"])
            write({"seconds": time.perf_counter() - begin, "ids": ids})
        except Exception as error:
            write({"error": str(error) or type(error).__name__})
