#!/usr/bin/env python3
"""Ten times as many requests at once as a server can hold: those that do not fit into the queue are refused with 429 and a time, those that
are accepted finish, /health answers meanwhile, the coordinator does not grow, and clients that hardly read hinder nobody."""
import collections
import json
import pathlib
import re
import resource
import socket
import threading
import unittest

from cluster import Cluster
from stopwatch import Stopwatch, at_most, wait_until

QUEUE = 12
KV_BYTES = 16 << 20
BODY = dict(prompt="Once upon a time, there was a", max_tokens=240, ignore_eos=True)
BURST = 10 * 2 * QUEUE  # about as many run as wait
HEALTH_LIMIT_S = 2  # of a free machine
GROWTH_MIB = 64


class Health(threading.Thread):
    """Asks /health again and again, and keeps the longest time that an answer took, in seconds of a free machine."""

    def __init__(self, api):
        super().__init__(daemon=True)
        self.api, self.longest_s, self.answers, self.ends = api, 0, 0, threading.Event()
        self.start()

    def run(self):
        while not self.ends.is_set():
            watch = Stopwatch()
            assert self.api.get("/health")[0] == 200
            self.longest_s, self.answers = max(self.longest_s, watch.seconds()), self.answers + 1
            self.ends.wait(0.01)

    def end(self):
        self.ends.set()
        self.join(at_most(10))
        return not self.is_alive() and self.answers > 0


class Burst(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        cls.cluster = Cluster(drafts=0, coordinator_flags=(f"--max_queue={QUEUE}",), worker_flags=(f"--kv_bytes={KV_BYTES}",))
        cls.cluster.__enter__()
        cls.api = cls.cluster.api

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None)

    def resident_mib(self):
        status = pathlib.Path(f"/proc/{self.cluster.process('coordinator').process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024

    def refused(self):
        return sum(float(value) for value in re.findall(r'coppice_request_refused_total{code="queue_full",.*} (\S+)', self.api.get("/metrics")[1]))

    def ask_at_once(self, count):
        """[(status, Retry-After, code or tokens)] of requests that are all sent before one is answered."""
        answers = []

        def ask(connection):
            answer = connection.getresponse()
            body = json.loads(answer.read())
            what = body["usage"]["completion_tokens"] if answer.status == 200 else body["error"]["code"]
            answers.append((answer.status, answer.getheader("Retry-After"), what))
        connections = [self.api.connect() for _ in range(count)]
        for connection in connections:
            connection.connect()
        for i, connection in enumerate(connections):
            connection.request("POST", "/v1/completions", json.dumps(dict(BODY, n=4, seed=i)), {"Content-Type": "application/json"})
        threads = [threading.Thread(target=ask, args=(connection,)) for connection in connections]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(at_most(120))
        for connection in connections:
            connection.close()
        return answers

    def test_what_does_not_fit_is_refused_and_what_does_is_finished(self):
        self.ask_at_once(4)  # what a first request needs is there
        before, refused_before = self.resident_mib(), self.refused()
        for _ in range(3):
            health = Health(self.api)
            answers = self.ask_at_once(BURST)
            self.assertTrue(health.end())
            self.assertLess(health.longest_s, HEALTH_LIMIT_S)
            counts = collections.Counter(status for status, _, _ in answers)
            self.assertEqual(set(counts), {200, 429}, counts)
            self.assertEqual(counts[200] + counts[429], BURST)
            self.assertGreaterEqual(counts[200], QUEUE)
            self.assertGreaterEqual(counts[429], BURST // 4)
            for status, retry_after, what in answers:
                if status == 429:
                    self.assertEqual(what, "queue_full")
                    self.assertTrue(1 <= int(retry_after) <= 60, retry_after)
                else:
                    self.assertEqual(what, 4 * BODY["max_tokens"])
            refused_before += counts[429]
            self.assertEqual(self.refused(), refused_before)
        self.assertLess(self.resident_mib(), before + GROWTH_MIB)
        self.assertEqual(self.api.cluster()["requests"]["waiting"], 0)
        self.assertEqual(self.ask_at_once(1)[0][0], 200)

    def test_streams_that_nobody_reads_hinder_nobody(self):
        before = self.resident_mib()
        health, readers = Health(self.api), []
        for seed in range(QUEUE):
            reader = socket.socket()
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            reader.connect(("127.0.0.1", self.cluster.port))
            data = json.dumps(dict(BODY, n=8, logprobs=20, stream=True, seed=seed)).encode()
            reader.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                           % len(data) + data)
            readers.append(reader)
        watch = Stopwatch()
        # They end on the replica, unread, and requests that come meanwhile are answered.
        self.assertEqual(self.api.complete(dict(BODY, max_tokens=8))["usage"]["completion_tokens"], 8)
        self.assertLess(watch.seconds(), 30)
        self.assertTrue(wait_until(lambda: self.api.cluster()["replicas"][0]["running"] == 0))
        self.assertTrue(health.end())
        self.assertLess(health.longest_s, HEALTH_LIMIT_S)
        self.assertLess(self.resident_mib(), before + GROWTH_MIB)
        for reader in readers:
            reader.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
