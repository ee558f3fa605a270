#!/usr/bin/env python3
"""What a platform does to a running cluster: it drains a replica, ends the server, and looks at metrics for its autoscaler."""
import contextlib
import json
import re
import signal
import tempfile
import threading
import unittest

from api_client import read_events
from cluster import Cluster
from model_folders import large_llama
from stopwatch import Stopwatch, at_most, wait_until

TOKENS = 600
BODY = dict(prompt="Once upon a time", max_tokens=TOKENS, ignore_eos=True, speculative=False)
ONCE = dict(BODY, speculative=dict(method="rejection"))  # decided by other draws if it starts again


class Stream(threading.Thread):
    """Reads a stream to its end: its events, in `text` its text, and in `error` the code of an error event."""

    def __init__(self, api, body):
        super().__init__(daemon=True)
        self.api, self.body = api, body
        self.events, self.text, self.error = [], "", None
        self.start()

    def run(self):
        connection, response = self.api.open_stream(self.body)  # waits for the first token
        with contextlib.suppress(OSError):
            for event in read_events(response) if response.status == 200 else [json.loads(response.read())]:
                self.events.append(event)
                if isinstance(event, dict) and "error" in event:
                    self.error = event["error"]["code"]
                elif isinstance(event, dict):
                    self.text += "".join(choice["text"] for choice in event["choices"])
        connection.close()

    def finished(self, seconds=60):
        self.join(at_most(seconds))
        return not self.is_alive() and self.events[-1:] == ["[DONE]"] and self.error is None


class Health(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.target = large_llama(f"{folder.name}/target", hidden=448, ffn=1792, context=1024)  # some milliseconds a step

    def cluster(self, **fields):
        return Cluster(target=self.target, drafts=0, **fields)

    def admin(self, cluster, what, **body):
        return cluster.api.post(body, f"/admin/{what}")

    def metric(self, cluster, name):
        """The sum of the samples of a metric."""
        text = cluster.api.get("/metrics")[1]
        return sum(float(value) for value in re.findall(rf"^coppice_{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))

    def test_a_drained_replica_hands_over_what_can_start_again_and_finishes_the_rest(self):
        with self.cluster(replicas=2) as cluster:
            wanted = {seed: cluster.api.complete(dict(BODY, seed=seed))["choices"][0]["text"] for seed in (1, 2)}
            again = {seed: Stream(cluster.api, dict(BODY, seed=seed)) for seed in (1, 2)}
            once = [Stream(cluster.api, dict(ONCE, seed=seed)) for seed in (3, 4)]
            streams = [*again.values(), *once]
            self.assertTrue(wait_until(lambda: all(stream.text for stream in streams)))
            status, state = self.admin(cluster, "drain", target="replica:replica-0", move=True, timeout=120, wait=120)
            self.assertEqual((status, state["running"], state["state"]), (200, 0, "draining"))
            self.assertEqual([drain["target"] for drain in cluster.api.cluster()["drains"]], ["replica:replica-0"])
            for stream in streams:
                self.assertTrue(stream.finished(), stream.events[-2:])
            self.assertEqual({seed: stream.text for seed, stream in again.items()}, wanted)
            moved = self.metric(cluster, "failovers_total")
            self.assertIn(moved, (1, 2))  # of those that can be decided again, whichever ran there
            cluster.process("replica-0").end()  # nothing is lost with it
            self.assertEqual(cluster.api.complete(dict(BODY, seed=1))["choices"][0]["text"], wanted[1])
            self.assertEqual(self.metric(cluster, "failovers_total"), moved)

    def test_after_sigterm_requests_finish_and_new_ones_are_refused(self):
        with self.cluster(coordinator_flags=("--drain_timeout=120",)) as cluster:
            stream = Stream(cluster.api, BODY)
            self.assertTrue(wait_until(lambda: stream.text))
            coordinator = cluster.process("coordinator").process
            coordinator.send_signal(signal.SIGTERM)
            self.assertTrue(wait_until(lambda: cluster.api.get("/ready")[0] == 503))
            self.assertIn("requests left: 1", cluster.api.get("/ready")[1])
            self.assertEqual(cluster.api.get("/health")[0], 200)
            self.assertEqual(cluster.api.post(dict(BODY, max_tokens=1))[1]["error"]["code"], "draining")
            drain = cluster.api.cluster()["drains"][0]
            self.assertEqual((drain["target"], drain["running"]), ("cluster", 1))
            self.assertLess(drain["seconds_left"], 120)
            self.assertTrue(stream.finished(), stream.events[-2:])
            self.assertEqual(coordinator.wait(at_most(10)), 0)

    def ask_to_end(self, cluster, n):
        """SIGTERM while streams of n choices each are under way: (streams, the coordinator's process)."""
        streams = [Stream(cluster.api, dict(BODY, n=n, seed=seed)) for seed in range(8)]
        self.assertTrue(wait_until(lambda: any(stream.text for stream in streams)))
        coordinator = cluster.process("coordinator").process
        coordinator.send_signal(signal.SIGTERM)
        return streams, coordinator

    def test_what_is_left_at_the_deadline_gets_a_clear_error(self):
        with self.cluster(coordinator_flags=("--drain_timeout=0.2",)) as cluster:
            streams, coordinator = self.ask_to_end(cluster, n=4)
            self.assertEqual(coordinator.wait(at_most(10)), 0)
            for stream in streams:
                stream.join(at_most(10))
            self.assertIn("draining", {stream.error for stream in streams})
            self.assertLessEqual({stream.error for stream in streams}, {"draining", None})

    def test_a_second_sigterm_ends_at_once(self):
        with self.cluster(coordinator_flags=("--drain_timeout=3600",)) as cluster:
            streams, coordinator = self.ask_to_end(cluster, n=8)
            self.assertTrue(wait_until(lambda: cluster.api.get("/ready")[0] == 503))
            watch = Stopwatch()
            coordinator.send_signal(signal.SIGTERM)
            self.assertEqual(coordinator.wait(at_most(10)), 0)
            self.assertLess(watch.seconds(), 3)

    def test_an_autoscaler_sees_load_and_limits(self):
        with self.cluster(worker_flags=("--kv_bytes=33554432",)) as cluster:
            total = sum(replica["kv"]["blocks_total"] for replica in cluster.api.cluster()["replicas"])
            self.assertEqual(self.metric(cluster, "queue_oldest_seconds"), 0)
            streams = [Stream(cluster.api, dict(BODY, n=1, seed=seed)) for seed in range(total // (TOKENS // 16) + 4)]
            self.assertTrue(wait_until(lambda: self.metric(cluster, "num_requests_waiting") >= 1))
            self.assertTrue(wait_until(lambda: self.metric(cluster, "queue_oldest_seconds") > 0))
            self.assertTrue(wait_until(lambda: self.metric(cluster, "num_requests_running") >= 1))
            self.assertTrue(wait_until(lambda: self.metric(cluster, "step_rows") >= 1))
            self.assertGreater(self.metric(cluster, "step_rows_limit"), self.metric(cluster, "step_rows"))
            self.assertGreater(self.metric(cluster, "kv_blocks_reserved"), total // 2)
            self.assertLessEqual(self.metric(cluster, "kv_blocks_reserved"), total)
            self.assertTrue(wait_until(lambda: self.metric(cluster, "queue_estimated_wait_seconds") > 0
                                       or self.metric(cluster, "num_requests_waiting") == 0))
            for stream in streams:
                self.assertTrue(stream.finished(), stream.events[-2:])
            self.assertTrue(wait_until(lambda: self.metric(cluster, "queue_oldest_seconds") == 0))
            self.assertEqual(self.metric(cluster, "kv_blocks_reserved"), 0)
            self.admin(cluster, "drain", target="cluster")
            self.assertEqual(self.metric(cluster, "draining"), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
