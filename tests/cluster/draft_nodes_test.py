#!/usr/bin/env python3
"""Two replicas and two draft nodes, of which one is stopped again and again, then killed, and a new one joins: no request fails, answers
are those without drafts, and sessions move."""
import os
import signal
import threading
import time
import unittest

from api_client import outcome
from cluster import Cluster
from stopwatch import wait_until

PULSE_S = 0.7  # shorter than three heartbeats


def bodies(first):
    """Some run for longer than a pulse, so that they have a draft node that is late."""
    common = dict(prompt="Once upon a time, there was a", return_token_ids=True, ignore_eos=True,
                  speculative=dict(draft_width=4, draft_depth=4))
    beams = dict(common, decoding="beam_search", beam_width=8, n=8, max_tokens=320)
    one = dict(common, max_tokens=440, temperature=1.0)
    return [dict(one, seed=seed) for seed in range(first, first + 4)] + [dict(beams, prompt=f"{text} was a")
                                                                          for text in ("A dog", "There", "Tom", "It", "Sue", "Her cat")]


class Pulses(threading.Thread):
    """Stops a process half of the time."""

    def __init__(self, pid):
        super().__init__()
        self.pid, self.over = pid, threading.Event()

    def run(self):
        while not self.over.is_set():
            os.kill(self.pid, signal.SIGSTOP)
            time.sleep(PULSE_S)
            os.kill(self.pid, signal.SIGCONT)
            self.over.wait(PULSE_S)

    def end(self):
        self.over.set()
        self.join()


class Load(threading.Thread):
    """Serves again and again."""

    def __init__(self, serve, over, first):
        super().__init__()
        self.serve, self.over, self.first, self.served, self.error = serve, over, first, 0, None
        self.start()

    def run(self):
        try:
            while not self.over.is_set():
                self.served += self.serve(self.first) > 0
        except (AssertionError, OSError, ValueError) as error:
            self.error = error

    def end(self):
        """How many batches had drafts."""
        self.join()
        if self.error is not None:
            raise self.error
        return self.served


class DraftNodes(unittest.TestCase):
    def serve(self, first):
        answers = self.cluster.api.complete_all(bodies(first))
        for answer, wanted in zip(answers, self.wanted[first]):
            self.assertEqual(outcome(answer), wanted)
        return sum(answer["usage"]["speculation"]["drafted_nodes"] for answer in answers)

    def metric(self, name, **labels):
        """The sum over the series that have these labels."""
        total = 0.0
        for line in self.cluster.api.get("/metrics")[1].splitlines():
            series, _, value = line.rpartition(" ")
            if series.startswith(f"coppice_{name}{{") and all(f'{key}="{text}"' in series for key, text in labels.items()):
                total += float(value)
        return total

    def moves(self, reason):
        return self.metric("draft_moves_total", reason=reason)

    def sessions_were_lost(self):
        """Kills draft-0. False: all of its sessions had just ended."""
        before = self.moves("gone")
        if not self.cluster.process("draft-0").alive():
            self.cluster.launched.remove(self.cluster.process("draft-0"))
            self.cluster.start_draft("draft-0")
        self.assertTrue(wait_until(lambda: self.metric("draft_sessions", draft_node="draft-0") > 0))
        draft = self.cluster.process("draft-0").process
        draft.kill()
        draft.wait()
        return wait_until(lambda: self.moves("gone") > before, 3)

    def test_one_is_slow_then_dead_and_a_new_one_joins(self):
        with Cluster(replicas=2, drafts=2, wait_for_drafts=False) as self.cluster:
            self.wanted = {}
            for first in (0, 100):
                plain = [dict(body, speculative=False) for body in bodies(first)]
                self.wanted[first] = [outcome(answer) for answer in self.cluster.api.complete_all(plain)]
            self.assertGreater(self.serve(0), 0)
            for name in ("draft-0", "draft-1"):
                self.assertTrue(wait_until(lambda n=name: self.metric("draft_reply_seconds", draft_node=n) > 0), name)

            pulses = Pulses(self.cluster.process("draft-0").process.pid)
            pulses.start()
            try:
                self.assertTrue(wait_until(lambda: self.serve(0) > 0 and self.serve(100) > 0 and self.moves("late") > 0))
            finally:
                pulses.end()

            over = threading.Event()
            loads = [Load(self.serve, over, first) for first in (0, 100)]
            try:
                self.assertTrue(wait_until(self.sessions_were_lost))
                self.assertTrue(wait_until(lambda: self.metric("draft_sessions", draft_node="draft-0") == 0))
            finally:
                over.set()
                served = [load.end() for load in loads]
            self.assertTrue(all(served))

            self.cluster.start_draft("draft-2")
            self.assertTrue(wait_until(lambda: self.serve(100) > 0 and self.metric("draft_reply_seconds", draft_node="draft-2") > 0))
            print("moves:", {reason: self.moves(reason) for reason in ("slow", "late", "gone", "refused")})


if __name__ == "__main__":
    unittest.main(verbosity=2)
