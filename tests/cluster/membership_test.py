#!/usr/bin/env python3
"""Nodes join and leave a running cluster: a draft node, and a replica of one process without mpirun."""
import contextlib
import http.client
import json
import os
import signal
import tempfile
import time
import unittest

from api_client import outcome
from cluster import Cluster
from model_folders import random_llama
from stopwatch import at_most, wait_until

BODY = dict(prompt="Once upon a time, there was a", decoding="beam_search", beam_width=4, n=4, max_tokens=40,
            return_token_ids=True, speculative=dict(draft_width=8, draft_depth=4))


class Membership(unittest.TestCase):
    def drafted(self, cluster):
        answer = cluster.api.complete(BODY)
        self.assertEqual(outcome(answer), self.wanted)
        return answer["usage"]["speculation"]["drafted_nodes"]

    def ready(self, cluster, key):
        return {node["id"] for node in cluster.api.cluster()[key] if node["state"] == "ready"}

    def test_draft_nodes_come_and_go(self):
        with Cluster(drafts=0, worker_flags=("--suffix_drafts=false",)) as cluster:
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

    def draft_ids(self, cluster):
        return sorted(node["id"] for node in cluster.api.cluster()["draft_nodes"])

    def test_a_draft_node_that_is_started_again_at_once_keeps_its_name(self):
        with Cluster(drafts=1) as cluster:
            first = cluster.process("draft-0")
            first.process.kill()
            first.process.wait()
            second = cluster.start_draft("draft-0")
            joined = "draft node draft-0 joined"
            self.assertTrue(wait_until(lambda: [e["what"] for e in cluster.api.cluster()["events"]].count(joined) == 2))
            self.assertEqual(self.ready(cluster, "draft_nodes"), {"draft-0"})
            self.assertEqual(self.draft_ids(cluster), ["draft-0"])
            # Two that live were given one name: both serve.
            cluster.start_draft("draft-0")
            self.assertTrue(wait_until(lambda: self.ready(cluster, "draft_nodes") == {"draft-0", "draft-0-2"}))
            self.assertTrue(second.alive())

    def test_a_node_that_the_coordinator_does_not_know_is_taken_back(self):
        """Another process has taken its name while it was stopped. Its connection has held."""
        with Cluster(drafts=1) as cluster:
            first = cluster.process("draft-0")
            os.kill(first.process.pid, signal.SIGSTOP)
            self.assertTrue(wait_until(lambda: not self.ready(cluster, "draft_nodes")))
            second = cluster.start_draft("draft-0")
            self.assertTrue(wait_until(lambda: self.ready(cluster, "draft_nodes") == {"draft-0"}))
            os.kill(first.process.pid, signal.SIGCONT)
            self.assertTrue(wait_until(lambda: self.ready(cluster, "draft_nodes") == {"draft-0", "draft-0-2"}))
            second.process.kill()
            self.wanted = outcome(cluster.api.complete(BODY))
            self.assertTrue(wait_until(lambda: self.ready(cluster, "draft_nodes") == {"draft-0-2"}))
            self.assertTrue(wait_until(lambda: self.drafted(cluster) > 0))

    def test_nodes_come_back_to_a_coordinator_that_was_killed(self):
        """The answer to a repeated request is the same. Of a stream that was cut, what was sent is its beginning."""
        with Cluster(drafts=1) as cluster:
            self.wanted = outcome(cluster.api.complete(BODY))
            long = dict(BODY, decoding="multinomial", beam_width=1, n=1, max_tokens=280, ignore_eos=True, seed=5, speculative=False)
            whole = cluster.api.complete(long)["choices"][0]["text"]
            connection, response = cluster.api.open_stream(long)
            shown = [response.readline()]
            coordinator = cluster.process("coordinator")
            coordinator.process.kill()
            coordinator.process.wait()
            with contextlib.suppress(OSError, http.client.HTTPException):
                shown.extend(response)
            connection.close()
            cluster.launched.remove(coordinator)
            cluster.launch("coordinator", coordinator.arguments)
            begin = time.monotonic()
            cluster.wait_ready()
            print(f"ready after {time.monotonic() - begin:.1f} s")
            self.assertTrue(wait_until(lambda: self.drafted(cluster) > 0))
            self.assertEqual(cluster.api.complete(long)["choices"][0]["text"], whole)
            events = [json.loads(line.removeprefix(b"data: ")) for line in shown if line.startswith(b"data: {")]
            text = "".join(choice["text"] for event in events for choice in event["choices"])
            self.assertTrue(text and whole.startswith(text), (text, whole))

    def test_a_draft_of_another_vocabulary_that_joins_first(self):
        with tempfile.TemporaryDirectory() as folder, Cluster(replicas=0, drafts=0) as cluster:
            cluster.draft = random_llama(f"{folder}/draft", vocab=4096)
            wrong = cluster.start_draft("draft-0")
            self.assertTrue(wait_until(lambda: self.ready(cluster, "draft_nodes") == {"draft-0"}))
            cluster.launch("replica-0", cluster.program(
                "worker", f"--model={cluster.target}", "--dtype=f32", "--threads=1", f"--coordinator={cluster.control}",
                "--replica_id=replica-0"))
            self.assertTrue(wait_until(lambda: self.ready(cluster, "replicas") == {"replica-0"}))
            self.assertEqual(wrong.process.wait(timeout=30), 1)
            self.assertRegex(wrong.reasons()[0], "^coppice-draft: node draft-0: .* refused: the draft model's vocabulary has 4096 ids "
                                                 "but the target model's has 512")
            spec = cluster.api.complete(BODY)["usage"]["speculation"]
            self.assertEqual(spec["rounds"] - spec["plain_rounds"], spec["suffix_rounds"])

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
