#!/usr/bin/env python3
"""In a whole cluster, Gumbel coupling and beam search give the same token ids and scores with and without drafts: alone, among 8 other
requests, with a good draft model, with a random one, and when the draft node is killed halfway.

  exactness_test.py TP [auto|int8] [TEST ...]      number of ranks of the replica; --kv_dtype of all nodes
"""
import os
import signal
import sys
import tempfile
import threading
import time
import unittest

from api_client import outcome
from cluster import DRAFT, Cluster
from model_folders import random_llama

PROMPTS = [
    "Once upon a time, there was a big bear who did not like the rain.",
    "One day, Sara and her dad made a boat of paper.",
    "There was a mouse who lived behind the oven.",
]
DISTRIBUTIONS = {
    "multinomial": dict(decoding="multinomial", seed=11, temperature=0.9),
    "greedy": dict(decoding="multinomial", temperature=0),
    "beam sampling": dict(decoding="beam_sampling", beam_width=4, n=4, seed=12),
    "beam search": dict(decoding="beam_search", beam_width=4, n=4),
    "beam search, every score": dict(decoding="beam_search", beam_width=3, n=2, early_stopping="never", length_penalty=0.5),
}
LONG = dict(max_tokens=150, ignore_eos=True, return_token_ids=True)
# Forests have a fixed size. Otherwise a replica drafts less when drafts do not pay.
DRAFTED = dict(speculative=dict(draft_width=8, draft_depth=4))
CLUSTER = {}  # how clusters are started


def requests():
    """[(name, body)]: every distribution with every prompt."""
    return [(f"{distribution}, prompt {i}", dict(fields, prompt=prompt, max_tokens=40, return_token_ids=True))
            for distribution, fields in DISTRIBUTIONS.items() for i, prompt in enumerate(PROMPTS)]


def others():
    """8 requests of all kinds that keep a replica busy."""
    distributions = list(DISTRIBUTIONS.values())
    return [dict(distributions[i % len(distributions)], **LONG, **DRAFTED, prompt=PROMPTS[i % len(PROMPTS)]) for i in range(8)]


def speculation(answer):
    return answer["usage"]["speculation"]


class Exactness(unittest.TestCase):
    plain = {}  # name -> outcome of the request alone, without drafts

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def assert_as_plain(self, name, answer):
        self.assertEqual(outcome(answer), self.plain[name], name)

    def test_1_good_draft_model(self):
        with Cluster(**CLUSTER, draft=DRAFT) as cluster:
            for name, body in requests():
                answer = cluster.api.complete(dict(body, speculative=False))
                self.plain[name] = outcome(answer)
                self.assertEqual(speculation(answer)["drafted_nodes"], 0, name)
                self.assertEqual(speculation(answer)["layers"], speculation(answer)["target_passes"], name)
            accepted = 0
            for name, body in requests():
                with self.subTest("alone", request=name):
                    self.assert_as_plain(name, cluster.api.complete(body))
                    answer = cluster.api.complete(dict(body, **DRAFTED))
                    self.assert_as_plain(name, answer)
                    self.assertGreater(speculation(answer)["drafted_nodes"], 0, name)
                    accepted += speculation(answer)["accepted_nodes"]
            self.assertGreater(accepted, 0)
            for name, body in requests():
                with self.subTest("among others, without drafts", request=name):
                    batch = cluster.api.complete_all([dict(body, speculative=False)] + others()[:3])
                    self.assert_as_plain(name, batch[0])
                    break
            self.among_others(cluster)

    def among_others(self, cluster):
        """Runs each request while 8 others run."""
        stop = threading.Event()
        failures = []

        def keep_running(body):
            try:
                while not stop.is_set():
                    cluster.api.complete(body)
            except (AssertionError, OSError) as error:
                failures.append(error)

        threads = [threading.Thread(target=keep_running, args=(body,)) for body in others()]
        for thread in threads:
            thread.start()
        try:
            time.sleep(0.2)
            for name, body in requests():
                with self.subTest("among 8 others", request=name):
                    self.assert_as_plain(name, cluster.api.complete(dict(body, **DRAFTED)))
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertEqual(failures, [])

    def test_2_random_draft_model(self):
        self.assertTrue(self.plain, "test_1 has not filled the answers to compare with")
        draft = random_llama(os.path.join(self.folder.name, "random"))
        with Cluster(**CLUSTER, draft=draft) as cluster:
            for name, body in requests():
                with self.subTest(request=name):
                    self.assert_as_plain(name, cluster.api.complete(body))
                    answer = cluster.api.complete(dict(body, **DRAFTED))
                    self.assert_as_plain(name, answer)
                    self.assertGreater(speculation(answer)["drafted_nodes"], 0, name)

    def test_3_draft_node_killed_half_way(self):
        with Cluster(**CLUSTER, draft=DRAFT, wait_for_drafts=False) as cluster:
            bodies = [dict(fields, **LONG, **DRAFTED, prompt=PROMPTS[i % len(PROMPTS)]) for i, fields in enumerate(DISTRIBUTIONS.values())]
            # As long as the context permits, so that the text is not whole before its first tokens have come here.
            streamed = dict(bodies[0], max_tokens=450)
            plain = [outcome(cluster.api.complete(dict(body, speculative=False))) for body in bodies]
            plain_streamed = outcome(cluster.api.complete(dict(streamed, speculative=False)))
            draft = cluster.process("draft-0").process
            results = []
            background = threading.Thread(target=lambda: results.append(cluster.api.complete_all(bodies * 2)))
            background.start()

            def kill_half_way(event, count):
                if count == 4:
                    os.kill(draft.pid, signal.SIGKILL)

            events = cluster.api.stream(dict(streamed, stream_options=dict(include_usage=True)), kill_half_way)
            background.join()
            self.assertEqual(draft.wait(), -signal.SIGKILL)
            self.assertEqual([outcome(answer) for answer in results[0]], plain * 2)
            ids = [token for event in events[:-1] for choice in event["choices"] for token in choice["token_ids"]]
            self.assertEqual(ids, plain_streamed[0][1])
            spec = next(e["usage"] for e in events if e != "[DONE]" and e.get("usage"))["speculation"]
            self.assertGreater(spec["plain_rounds"], 0)
            self.assertGreater(spec["rounds"], spec["plain_rounds"])
            # The cluster goes on serving without a draft node.
            self.assertEqual([outcome(answer) for answer in cluster.api.complete_all(bodies)], plain)


if __name__ == "__main__":
    if len(sys.argv) < 2 or not sys.argv[1].isdigit():
        sys.exit(__doc__)
    CLUSTER["tp"] = int(sys.argv.pop(1))
    if sys.argv[1:2] in (["auto"], ["int8"]):
        flags = [f"--kv_dtype={sys.argv.pop(1)}"]
        CLUSTER.update(worker_flags=flags, draft_flags=flags)
    unittest.main(verbosity=2, failfast=False)
