#!/usr/bin/env python3
"""KV in 8 bits: target and draft each have a type of their own. That of the target changes scores, that of the draft does not. Each
node says which it has, and ranks that were given different ones do not start."""
import re
import subprocess
import unittest

from api_client import outcome
from cluster import BIN, TARGET, Cluster, launch_environment
from exactness_test import DRAFTED, requests, speculation
from stopwatch import at_most


class KvTypes(unittest.TestCase):
    outcomes = {}  # types of target and draft -> outcomes

    def answers(self, target, draft):
        with Cluster(worker_flags=[f"--kv_dtype={target}"], draft_flags=[f"--kv_dtype={draft}"]) as cluster:
            nodes = cluster.api.cluster()
            names = {"auto": "F32", "int8": "I8"}
            self.assertEqual([node["kv_dtype"] for node in nodes["replicas"] + nodes["draft_nodes"]], [names[target], names[draft]])
            metrics = cluster.api.get("/metrics")[1]
            self.assertRegex(metrics, rf'model_info{{[^}}]*kv_dtype="{names[target]}"')
            answers = [cluster.api.complete(dict(body, **DRAFTED)) for _, body in requests()]
            self.assertGreater(sum(speculation(answer)["accepted_nodes"] for answer in answers), 0)
            self.outcomes[target, draft] = [outcome(answer) for answer in answers]
            for (name, body), drafted in zip(requests(), self.outcomes[target, draft]):
                with self.subTest(request=name, target=target, draft=draft):
                    self.assertEqual(outcome(cluster.api.complete(dict(body, speculative=False))), drafted)

    def test_1_in_8_bits_on_the_target_alone(self):
        self.answers("int8", "auto")

    def test_2_in_8_bits_on_the_draft_alone(self):
        self.answers("auto", "int8")

    def test_3_in_8_bits_on_both(self):
        self.answers("int8", "int8")
        self.assertEqual(self.outcomes["int8", "int8"], self.outcomes["int8", "auto"])
        self.assertNotEqual(self.outcomes["int8", "int8"], self.outcomes["auto", "int8"])

    def test_4_ranks_that_differ(self):
        worker = [BIN / "coppice-worker", f"--model={TARGET}", "--threads=1", "--coordinator=tcp://127.0.0.1:9", "--tp=2"]
        ended = subprocess.run(["mpirun", "-q", "-np", "1", *worker, ":", "-np", "1", *worker, "--kv_dtype=int8"],
                               env=launch_environment(), capture_output=True, text=True, timeout=at_most(60))
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("kv_dtype: int8 on rank 1, auto on rank 0; all ranks of a replica keep KV in one type", ended.stderr + ended.stdout)

    def test_5_check_counts_it(self):
        def kv_of(kind):
            out = subprocess.run([BIN / "coppice-worker", f"--model={TARGET}", "--check", f"--kv_dtype={kind}", "--check_tokens=10000000"],
                                 capture_output=True, text=True, timeout=at_most(30), check=True).stdout
            name, gigabytes = re.search(r"KV \((\w+)\) ([\d.]+) GB to", out).groups()
            return name, float(gigabytes)

        (f32, wide), (i8, narrow) = kv_of("auto"), kv_of("int8")
        self.assertEqual((f32, i8), ("F32", "I8"))
        self.assertAlmostEqual(narrow / wide, (8 + 4) / (8 * 4), places=2)  # heads of 8


if __name__ == "__main__":
    unittest.main()
