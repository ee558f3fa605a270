#!/usr/bin/env python3
"""When a client disconnects, streaming or not, its work stops and its KV blocks are freed."""
import json
import socket
import time
import unittest

from cluster import Cluster
from stopwatch import wait_until

BODY = dict(prompt="Once upon a time, there was a", decoding="beam_search", beam_width=32, n=32, max_tokens=300,
            ignore_eos=True, early_stopping="never", seed=3)
REQUESTS = 40  # 12 s of work on two fast cores: beams that differ share no rows. It must not end by itself before FREED_WITHIN_S
FREED_WITHIN_S = 4  # heartbeats bring the figures twice a second


class Disconnect(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(tp=2)
        cls.cluster.__enter__()
        cls.api = cls.cluster.api
        cls.api.complete(dict(BODY, max_tokens=8))
        time.sleep(1)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None)

    def load(self):
        """(running requests, KV blocks in use) of the replica."""
        replica = self.api.cluster()["replicas"][0]
        return replica["running"] + replica["waiting"], replica["kv"]["blocks_used"]

    def wait_for(self, condition, seconds):
        return wait_until(lambda: condition(self.load()), seconds, poll_s=0.02)

    def open_many(self, count, **fields):
        """Returns sockets, each with a request that has started."""
        sockets = []
        for i in range(count):
            data = json.dumps(dict(BODY, seed=i, **fields)).encode()
            s = socket.create_connection(("127.0.0.1", self.cluster.port))
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                      b"Content-Length: %d\r\n\r\n" % len(data) + data)
            sockets.append(s)
        return sockets

    def check(self, close, **fields):
        self.assertTrue(self.wait_for(lambda load: load[0] == 0, FREED_WITHIN_S), "the test before left requests")
        idle = self.load()
        sockets = self.open_many(REQUESTS, **fields)
        self.assertTrue(self.wait_for(lambda load: load[0] > 0 and load[1] > idle[1], 5), f"the requests never ran: {self.load()} after {idle}")
        for s in sockets:
            close(s)
        self.assertTrue(self.wait_for(lambda load: load == idle, FREED_WITHIN_S), f"{self.load()} instead of {idle}")
        for s in sockets:
            s.close()

    def test_streamed(self):
        self.check(lambda s: s.close(), stream=True)

    def test_not_streamed(self):
        self.check(lambda s: s.close())

    def test_half_closed(self):
        self.check(lambda s: s.shutdown(socket.SHUT_WR), stream=True)

    def test_serves_on_afterwards(self):
        for s in self.open_many(4):
            s.close()
        self.assertEqual(len(self.api.complete(dict(BODY, max_tokens=8))["choices"]) > 0, True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
