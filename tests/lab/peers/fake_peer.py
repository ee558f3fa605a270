"""A peer without an engine. Its text is the last id of the prompt plus the width, again and again; some prompts make it misbehave."""
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "lab/bench/peers"))
from answering import Refusal, serve  # noqa: E402

FAILS, DIES, HANGS = 9001, 9002, 9003


class Batch:
    """A token of each request a step; a step takes two milliseconds."""

    def __init__(self):
        self.running, self.count = {}, 0

    def add(self, prompt, tokens):
        if prompt[-1] == FAILS:
            raise Refusal("as it was told to")
        self.count += 1
        self.running[self.count] = tokens
        return self.count

    def step(self):
        time.sleep(0.002)
        came = [(name, 1, left == 1) for name, left in self.running.items()]
        self.running = {name: left - 1 for name, left in self.running.items() if left > 1}
        return came

    def clear(self):
        self.running = {}


def load(folder, work, kind, threads):
    if kind == "int4":
        raise Refusal("no int4 here")
    print("a library that talks")  # not a line of the protocol
    sys.stdout.flush()
    assert pathlib.Path(folder).is_dir() and pathlib.Path(work).is_dir() and threads > 0

    def generate(prompts, width, tokens):
        last = prompts[0][-1]
        if last == FAILS:
            raise Refusal("as it was told to")
        if last == DIES:
            os._exit(7)
        if last == HANGS:
            time.sleep(3600)
        return [[ids[-1] + width] * tokens for ids in prompts]

    return "1.0", generate, Batch()


serve(load)
