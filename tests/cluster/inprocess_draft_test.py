#!/usr/bin/env python3
"""Drafts that a replica's leader grows in its own process (coppice-worker --draft): the token ids and scores are those with a draft node and
those without drafts, alone, together, with formats and penalties, and when sequences are preempted. Draft nodes may serve beside it. A
draft that does not fit ends the start.

  inprocess_draft_test.py [cuda]   cuda: on the simulated device, the first two tests
"""
import os
import signal
import sys
import tempfile
import unittest

import drafted_requests
import model_folders
from api_client import outcome
from cluster import DRAFT, Cluster, StartFailure
from drafted_requests import DRAFTED, drafted, metric, preempted
from stopwatch import wait_until

ON_GPU = sys.argv[1:] == ["cuda"]
DTYPE = "bf16" if ON_GPU else "f32"
BACKEND = ("--backend=cuda", "--tuning_cache=") if ON_GPU else ()
WORKER = (*BACKEND, f"--kv_bytes={4 << 20}", *(["--exact"] if ON_GPU else []))
OWN = (f"--draft={DRAFT}", f"--draft_kv_bytes={4 << 20}")
BODIES = drafted_requests.bodies(ON_GPU)


def started(worker=WORKER, **fields):
    return Cluster(**{**dict(dtype=DTYPE, worker_flags=worker, draft_flags=BACKEND), **fields})


class InProcessDraft(unittest.TestCase):
    plain = {}  # name -> outcome without drafts

    def check(self, name, answer):
        self.assertEqual(outcome(answer), self.plain[name], name)

    def test_1_by_a_draft_node(self):
        with started() as cluster:
            for name, body in BODIES:
                self.plain[name] = outcome(cluster.api.complete(dict(body, speculative=False)))
                answer = cluster.api.complete(dict(body, **DRAFTED))
                self.check(name, answer)
                self.assertGreater(drafted(answer), 0, name)

    def test_2_in_its_own_process(self):
        self.assertTrue(self.plain, "test_1 has not filled the answers to compare with")
        with started(worker=(*WORKER, *OWN), drafts=0) as cluster:
            replica = cluster.process("replica-0")
            self.assertEqual(cluster.api.cluster()["draft_nodes"], [])
            accepted = 0
            for name, body in BODIES:
                with self.subTest(request=name):
                    self.check(name, cluster.api.complete(dict(body, speculative=False)))
                    answer = cluster.api.complete(dict(body, **DRAFTED))
                    self.check(name, answer)
                    self.assertGreater(drafted(answer), 0)
                    accepted += answer["usage"]["speculation"]["accepted_nodes"]
            self.assertGreater(accepted, 0)
            for (name, _), answer in zip(BODIES, cluster.api.complete_all([dict(body, **DRAFTED) for _, body in BODIES])):
                with self.subTest("together", request=name):
                    self.check(name, answer)
            self.assertTrue(wait_until(lambda: any('draft_node="in-process"' in labels for labels in metric(cluster, "draft_reply_seconds")[1]), 5))
            if not ON_GPU:  # the simulated one is late
                self.assertEqual(metric(cluster, "rounds_without_draft_total")[0], 0)
            for pid in replica.ranks().values():
                os.kill(pid, signal.SIGTERM)
            self.assertTrue(replica.wait_gone(10), replica.output())
            self.assertEqual(replica.reasons(), [])

    def test_3_beside_a_draft_node(self):
        """Sessions of many requests are on both; the node leaves in the middle."""
        self.assertTrue(self.plain, "test_1 has not filled the answers to compare with")
        with started(worker=(*WORKER, *OWN), draft=DRAFT) as cluster:
            bodies = [(name, dict(body, **DRAFTED)) for name, body in BODIES]
            for turn in range(2):
                for (name, _), answer in zip(bodies, cluster.api.complete_all([body for _, body in bodies])):
                    self.check(name, answer)
                if turn > 0:
                    break
                self.assertTrue(wait_until(lambda: len(metric(cluster, "draft_reply_seconds")[1]) == 2, 5))
                cluster.process("draft-0").end()
                self.assertTrue(wait_until(lambda: not cluster.api.cluster()["draft_nodes"] or
                                           cluster.api.cluster()["draft_nodes"][0]["state"] != "ready", 10))
            answer = cluster.api.complete(bodies[0][1])
            self.assertGreater(drafted(answer), 0)

    def test_4_preempted(self):
        flags = (*(flag for flag in WORKER if "kv_bytes" not in flag), f"--kv_bytes={drafted_requests.pool(60)}", *OWN)
        with started(worker=flags, drafts=0, coordinator_flags=("--kv_cover=0",)) as cluster:
            preempted(self, cluster)

    def test_5_a_draft_that_does_not_fit(self):
        with tempfile.TemporaryDirectory() as folder:
            other = model_folders.random_llama(f"{folder}/other", vocab=1024)
            for draft, words in ((other, ["--draft: ", "1024 ids", "512"]), (f"{folder}/none", ["--draft: ", f"{folder}/none"])):
                with self.assertRaises(StartFailure) as failure:
                    with started(worker=(*WORKER, f"--draft={draft}"), drafts=0):
                        pass
                for word in words:
                    self.assertIn(word, str(failure.exception))


if __name__ == "__main__":
    names = [f"InProcessDraft.{name}" for name in ("test_1_by_a_draft_node", "test_2_in_its_own_process")] if ON_GPU else None
    unittest.main(argv=sys.argv[:1], defaultTest=names, failfast=True, verbosity=2)
