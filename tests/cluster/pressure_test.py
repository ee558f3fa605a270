#!/usr/bin/env python3
"""A replica whose KV pool is far too small for its load: 64 mixed requests at a time, of all reproducible methods and widths 1 to 16, with
prompts of 10 to 400 tokens, formats and log-probabilities, a third streamed, a tenth abandoned. Sequences are preempted, about ten times a
wave, and every answer has the tokens and scores that it has alone. Afterwards the pool is empty.

  pressure_test.py [WAVES [REQUESTS]] [WORKER_FLAG ...]      2 waves of 64 requests each by default
"""
import itertools
import pathlib
import random
import re
import sys
import threading
import time
import unittest

from cluster import DRAFT, Cluster

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "chaos"))
from clients import Failed, Request, mixed_bodies  # noqa: E402

TOGETHER = 64
BLOCK_BYTES = 16 * 2 * 5 * 4 * 8 * 4  # of stories260k: tokens, K and V, layers, KV heads, head dimension, f32
POOL_BLOCKS = 190  # the largest request of chaos/clients.py could need nearly all of it
STORY = ("The bear walked to the river and sat down on a stone. He saw a red boat with a white sail. A little mouse was in the boat and "
         "she waved to him. \"Come with me,\" said the mouse, \"we will find the big tree.\" ")
WAVES, WORKER_FLAGS = 2, []


def bodies(seed):
    """The 64 requests of a wave."""
    draw = random.Random(seed)
    waves = mixed_bodies(seed, TOGETHER)
    for body in waves:
        longest = 900
        if "structured_outputs" not in body and body.get("beam_width", 1) <= 4 and draw.random() < 0.8:  # its answer is long, its prompt short
            body.update(max_tokens=draw.choice((200, 300)), ignore_eos=True)
            longest = 150
        body["prompt"] = (STORY * 8)[draw.randrange(40):][:draw.randrange(20, longest)]
        body["stream"] = draw.random() < 1 / 3
        body["priority"] = draw.choice((0, 0, 0, 1, -1))
    return waves


class Pressure(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(draft=DRAFT, worker_flags=[f"--kv_bytes={BLOCK_BYTES * (POOL_BLOCKS + 1)}", *WORKER_FLAGS],
                              coordinator_flags=["--max_queue=1024", "--kv_cover=0", "--default_timeout=3600"])
        cls.cluster.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)

    def metric(self, name):
        text = self.cluster.api.get("/metrics")[1]
        return sum(float(value) for value in re.findall(rf"^coppice_{name}{{[^}}]*}} (\S+)$", text, re.MULTILINE))

    def together(self, wave, alone, abandoned):
        """Sends all of a wave at once. Returns the number of answers that were compared."""
        compared, faults = [], []

        def run(i):
            request = Request(self.cluster.api, wave[i])
            if i in abandoned:
                threading.Timer(abandoned[i], request.abandon).start()
            try:
                answer = request.answer()
            except Failed as failure:
                if i not in abandoned:
                    faults.append((i, str(failure)))
                return
            compared.append(i)
            if answer != alone[i]:
                faults.append((i, f"{wave[i]}: {answer} instead of {alone[i]}"))

        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(wave))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(faults, [])
        return len(compared)

    def test_answers_are_those_of_each_alone(self):
        compared = 0
        for seed in range(WAVES):
            wave = bodies(seed)
            draw = random.Random(seed)
            alone = [Request(self.cluster.api, dict(body, priority=0)).answer() for body in wave]
            for body in wave:  # the coordinator expects the next answers to be as short as the shortest of these
                self.cluster.api.post(dict(body, stream=False, stop=[" ", "e", "a"], ignore_eos=False, structured_outputs=None, priority=0))
            abandoned = {i: draw.uniform(0.05, 2) for i in range(len(wave)) if draw.random() < 0.1}
            compared += self.together(wave, alone, abandoned)
        self.assertGreaterEqual(compared, 0.85 * WAVES * TOGETHER)
        time.sleep(3)  # heartbeats bring the counters
        print(f"{compared} answers, {self.metric('num_preemptions_total'):.0f} preemptions")
        self.assertGreater(self.metric("num_preemptions_total"), TOGETHER / 20 * WAVES)

    def test_the_pool_is_empty_afterwards(self):
        for _ in range(100):
            kv = self.cluster.api.cluster()["replicas"][0]["kv"]
            if kv["blocks_used"] == 0:
                break
            time.sleep(0.1)
        self.assertEqual(kv["blocks_used"], 0)
        self.assertEqual(kv["blocks_total"], POOL_BLOCKS)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        numbers = list(itertools.takewhile(str.isdigit, sys.argv[1:]))
        WORKER_FLAGS = sys.argv[1 + len(numbers):]
        WAVES, TOGETHER = [int(n) for n in numbers + [2, 64][len(numbers):]]
    unittest.main(argv=sys.argv[:1], verbosity=2)
