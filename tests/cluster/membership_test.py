#!/usr/bin/env python3
"""Nodes join and leave a running cluster: a draft node, and a replica of one process without mpirun."""
import os
import signal
import unittest

from api_client import outcome
from cluster import Cluster
from stopwatch import at_most, wait_until

BODY = dict(prompt="columns: a, b\nquestion: What is a?\nsql:", decoding="beam_search", beam_width=4, n=4, max_tokens=40,
            return_token_ids=True, speculative=dict(draft_width=8, draft_depth=4))


class Membership(unittest.TestCase):
    def drafted(self, cluster):
        answer = cluster.api.complete(BODY)
        self.assertEqual(outcome(answer), self.wanted)
        return answer["usage"]["speculation"]["drafted_nodes"]

    def ready(self, cluster, key):
        return {node["id"] for node in cluster.api.cluster()[key] if node["state"] == "ready"}

    def test_draft_nodes_come_and_go(self):
        with Cluster(drafts=0) as cluster:
            self.wanted = outcome(cluster.api.complete(BODY))
            self.assertEqual(self.drafted(cluster), 0)
            first = cluster.start_draft("draft-a")
            self.assertTrue(wait_until(lambda: self.ready(cluster, "draft_nodes") == {"draft-a"}))
            self.assertTrue(wait_until(lambda: self.drafted(cluster) > 0))
            first.process.terminate()
            self.assertEqual(first.process.wait(timeout=at_most(10)), 0)
            self.assertTrue(wait_until(lambda: not self.ready(cluster, "draft_nodes")))
            self.assertTrue(wait_until(lambda: self.drafted(cluster) == 0))
            cluster.start_draft("draft-b")
            self.assertTrue(wait_until(lambda: self.drafted(cluster) > 0))

    def test_replica_joins_and_one_is_lost(self):
        with Cluster(drafts=0) as cluster:
            self.wanted = outcome(cluster.api.complete(BODY))
            cluster.launch("replica-1", cluster.program(
                "worker", f"--model={cluster.target}", "--dtype=f32", "--threads=1", f"--coordinator={cluster.control}",
                "--replica_id=replica-1"))
            self.assertTrue(wait_until(lambda: self.ready(cluster, "replicas") == {"replica-0", "replica-1"}))
            for answer in cluster.api.complete_all([BODY] * 6):
                self.assertEqual(outcome(answer), self.wanted)
            os.kill(cluster.process("replica-1").process.pid, signal.SIGKILL)
            self.assertTrue(wait_until(lambda: self.ready(cluster, "replicas") == {"replica-0"}))
            for answer in cluster.api.complete_all([BODY] * 6):
                self.assertEqual(outcome(answer), self.wanted)


if __name__ == "__main__":
    unittest.main(verbosity=2)
