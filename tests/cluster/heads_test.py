#!/usr/bin/env python3
"""Drafts that take the target's hidden states (docs/drafts.md): token ids and scores are those without drafts, in the worker's process and
on draft nodes, by one rank and two, alone, together, with formats and penalties, when sequences are preempted and when a draft node ends or
a new one comes in the middle of an answer. Heads with random or bad weights cost speed alone. A head of another target is refused.

  heads_test.py eagle3|dflash [cuda]   cuda: on the simulated device, the first tests
"""
import os
import signal
import sys
import tempfile
import threading
import unittest

import drafted_requests
import model_folders
from api_client import outcome
from cluster import DRAFT, ROOT, TARGET, Cluster, StartFailure
from drafted_requests import DRAFTED, PROMPTS, drafted, metric, preempted
from stopwatch import wait_until

KIND, ON_GPU = sys.argv[1], sys.argv[2:] == ["cuda"]
BODIES = drafted_requests.bodies(ON_GPU)
HEAD = ROOT / "tests/models" / f"stories260k-{KIND}"
BACKEND = ("--backend=cuda", "--tuning_cache=") if ON_GPU else ()
WORKER = (*BACKEND, *(["--exact"] if ON_GPU else []))
LONG = dict(decoding="beam_sampling", beam_width=3, n=3, max_tokens=400, ignore_eos=True, return_token_ids=True, prompt=PROMPTS[0])
POOL_4M, DRAFT_4M = f"--kv_bytes={4 << 20}", f"--draft_kv_bytes={4 << 20}"


class Heads(unittest.TestCase):
    plain = {}  # name -> outcome without drafts

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def in_process(self, head=HEAD, pool=POOL_4M, **fields):
        return Cluster(drafts=0, dtype="bf16" if ON_GPU else "f32", worker_flags=(*WORKER, pool, f"--draft={head}", DRAFT_4M), **fields)

    def on_nodes(self, head=HEAD, states_for=HEAD, **fields):
        flags = dict(draft=head, worker_flags=(*WORKER, POOL_4M, f"--states_for={states_for}", "--suffix_drafts=false"), draft_flags=(*BACKEND, f"--target={TARGET}"))
        return Cluster(dtype="bf16" if ON_GPU else "f32", **{**flags, **fields})

    def check(self, cluster):
        """Every request alone, then all together, against those without drafts."""
        plain = {name: outcome(cluster.api.complete(dict(body, speculative=False))) for name, body in BODIES}
        alone = [cluster.api.complete(dict(body, **DRAFTED)) for _, body in BODIES]
        together = cluster.api.complete_all([dict(body, **DRAFTED) for _, body in BODIES])
        for answers in (alone, together):
            for (name, _), answer in zip(BODIES, answers):
                with self.subTest(request=name):
                    self.assertEqual(outcome(answer), plain[name], name)
        for (name, _), answer in zip(BODIES, alone):
            self.assertGreater(drafted(answer), 0, name)
        self.assertGreater(sum(answer["usage"]["speculation"]["accepted_nodes"] for answer in alone), len(BODIES))
        return plain

    def ask(self, cluster, bodies):
        """(answers, the thread that appends them), once a replica works at them."""
        answers = []
        asking = threading.Thread(target=lambda: answers.extend(cluster.api.complete_all([dict(body, **DRAFTED) for body in bodies])))
        asking.start()
        self.assertTrue(wait_until(lambda: metric(cluster, "num_requests_running")[0] > 0, 5, poll_s=0.01))
        return answers, asking

    def test_1_in_the_workers_process(self):
        with self.in_process() as cluster:
            self.plain.update(self.check(cluster))
            self.assertTrue(wait_until(lambda: metric(cluster, "draft_state_bytes_total")[0] > 0, 5))
            if not ON_GPU:  # the simulated one is late
                self.assertEqual(metric(cluster, "rounds_without_draft_total")[0], 0)

    def test_2_on_a_draft_node(self):
        with self.on_nodes(tp=1 if ON_GPU else 2) as cluster:
            self.check(cluster)

    def test_3_nodes_that_end_and_come(self):
        """Long answers go on while their node ends. A new node gets the states of all that it must read."""
        with self.on_nodes(drafts=2) as cluster:
            bodies = [dict(LONG, seed=seed) for seed in range(16)]
            plain = [outcome(cluster.api.complete(dict(body, speculative=False))) for body in bodies]
            answers, asking = self.ask(cluster, bodies)
            cluster.process("draft-0").end()
            cluster.start_draft("draft-2")
            asking.join()
            self.assertEqual([outcome(answer) for answer in answers], plain)
            self.assertTrue(wait_until(lambda: sum(node["state"] == "ready" for node in cluster.api.cluster()["draft_nodes"]) == 2, 20))
            cluster.process("draft-1").end()
            answers = cluster.api.complete_all([dict(body, **DRAFTED) for body in bodies])
            self.assertEqual([outcome(answer) for answer in answers], plain)
            self.assertGreater(sum(drafted(answer) for answer in answers), 0)

    def test_4_preempted(self):
        with self.in_process(pool=f"--kv_bytes={drafted_requests.pool(60, state_columns=64)}", coordinator_flags=("--kv_cover=0",)) as cluster:
            preempted(self, cluster)

    def test_5_bad_weights_cost_speed_alone(self):
        for name, change in (("random", model_folders.with_random_weights), ("nan", model_folders.with_nan_weights)):
            head = change(f"{self.folder.name}/{name}", HEAD)
            with self.subTest(name), self.in_process(head=head) as cluster:
                self.assertTrue(self.plain, "test_1 has not filled the answers to compare with")
                for (name, _), answer in zip(BODIES, cluster.api.complete_all([dict(body, **DRAFTED) for _, body in BODIES])):
                    self.assertEqual(outcome(answer), self.plain[name], name)

    def test_6_a_head_of_another_target(self):
        other = model_folders.random_llama(f"{self.folder.name}/other", hidden=32, layers=6)
        with self.assertRaises(StartFailure) as failure:
            with Cluster(target=other, drafts=0, worker_flags=(POOL_4M, f"--draft={HEAD}", DRAFT_4M)):
                pass
        self.assertIn("64", str(failure.exception))
        self.assertIn("32", str(failure.exception))

    def test_7_a_node_with_another_head(self):
        """Its states would mean nothing there, so the replica does not use it."""
        head = model_folders.with_random_weights(f"{self.folder.name}/another", HEAD)
        with self.on_nodes(head=head) as cluster:
            answer = cluster.api.complete(dict(BODIES[0][1], **DRAFTED))
            self.assertEqual(drafted(answer), 0)
            self.assertIn("--states_for", cluster.process("replica-0").output())

    def test_8_a_model_beside_a_head(self):
        """A replica that keeps states uses draft nodes with a model of their own too."""
        with self.on_nodes(draft=DRAFT, draft_flags=BACKEND) as cluster:
            self.check(cluster)

    def test_9_a_replica_that_ends(self):
        """Its requests go on at the other one, whose head gets all states anew."""
        with self.in_process(replicas=2) as cluster:
            bodies = [dict(LONG, seed=seed) for seed in range(16)]
            plain = [outcome(cluster.api.complete(dict(body, speculative=False))) for body in bodies]
            answers, asking = self.ask(cluster, bodies)
            for pid in cluster.process("replica-0").ranks().values():
                os.kill(pid, signal.SIGKILL)
            asking.join()
            self.assertEqual([outcome(answer) for answer in answers], plain)
            self.assertGreater(sum(drafted(answer) for answer in answers), 0)
            self.assertGreater(metric(cluster, "failovers_total")[0], 0)


if __name__ == "__main__":
    names = [f"Heads.{name}" for name in ("test_1_in_the_workers_process", "test_2_on_a_draft_node")] if ON_GPU else None
    unittest.main(argv=sys.argv[:1], defaultTest=names, failfast=True, verbosity=2)
