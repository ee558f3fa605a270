#!/usr/bin/env python3
"""Logs of a whole cluster in the JSON form: every line is an object, and the lines of a request have the trace of its client."""
import json
import unittest

from cluster import Cluster
from stopwatch import wait_until

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
FLAGS = ("--log_format=json", "--log_level=debug")
MARKER = "a secret place"


class Logs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(coordinator_flags=FLAGS, worker_flags=FLAGS, draft_flags=FLAGS)
        cls.cluster.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None)

    def lines(self, name, **members):
        """The lines of a process that have these members. Each line must be an object with the common members."""
        found = []
        for text in self.cluster.process(name).output().splitlines():
            line = json.loads(text)
            self.assertLessEqual({"time", "level", "actor", "message"}, set(line))
            if all(line.get(key) == value for key, value in members.items()):
                found.append(line)
        return found

    def send(self, body, **headers):
        return self.cluster.api.post_raw(json.dumps(body).encode(), headers={"Content-Type": "application/json", **headers})

    def one_line(self, name, **members):
        self.assertTrue(wait_until(lambda: len(self.lines(name, **members)) == 1), (name, members))
        return self.lines(name, **members)[0]

    def test_every_process_logs_the_trace_of_a_request(self):
        body = dict(prompt=MARKER, max_tokens=12, decoding="beam_search", beam_width=4, n=2, speculative=dict(draft_width=8, draft_depth=4))
        status, answer = self.send(body, traceparent=f"00-{TRACE}-00f067aa0ba902b7-01", tracestate="vendor=1")
        self.assertEqual(status, 200, answer)
        line = self.one_line("coordinator", trace_id=TRACE)
        self.assertEqual((line["message"], line["status"], line["key"], line["code"]), ("request", 200, None, None))
        self.assertEqual((line["decoding"], line["W"], line["n"]), ("beam_search", 4, 2))
        self.assertEqual(line["completion_tokens"], answer["usage"]["completion_tokens"])
        self.assertEqual(line["replica"], ["replica-0"])
        self.assertGreater(line["total_ms"], 0)
        self.assertEqual(self.one_line("replica-0", trace_id=TRACE)["message"], "sequence begins")
        self.assertEqual(self.one_line("draft-0", trace_id=TRACE)["message"], "session begins")
        for process in self.cluster.launched:
            self.assertNotIn(MARKER, process.output())

    def test_a_refusal_names_the_field(self):
        self.assertEqual(self.send(dict(prompt=MARKER, speculative=dict(draft_width=-1)), **{"X-Request-Id": "refused"})[0], 400)
        line = self.one_line("coordinator", id="refused")
        self.assertEqual((line["status"], line["code"], line["param"]), (400, "invalid_value", "speculative.draft_width"))
        self.assertRegex(line["trace_id"], "^[0-9a-f]{32}$")


if __name__ == "__main__":
    unittest.main(verbosity=2)
